"""Injects one fault after another at random times, and counts them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence

from simulator.conditions import Conditions
from simulator.engine.simulator import Simulator
from simulator.faults.broker_faults import Injector
from simulator.plan import CLUSTER_DEATHS, DEATHS

_ALL_DEATHS = (*DEATHS, *CLUSTER_DEATHS)
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.5, 4.5


class Injections:
    """The faults of a world by their names.

    Args:
        harmless: names of faults that delay no response, or say themselves when they do.
    """

    def __init__(
        self,
        simulator: Simulator,
        conditions: Conditions,
        rng: random.Random,
        injectors: Mapping[str, Injector],
        *,
        harmless: Collection[str] = (),
    ) -> None:
        self._simulator = simulator
        self._conditions = conditions
        self._rng = rng
        self._injectors = injectors
        self._harmless = harmless

    async def run(self, names: Sequence[str], end: float) -> None:
        """Inject these faults until `end`; if some are deaths, until one has happened.

        end: seconds of the loop's time.
        """
        loop, rng = self._simulator.loop, self._rng
        deaths = [name for name in names if name in _ALL_DEATHS]
        missing = bool(deaths)
        while loop.time() < end or missing:
            await asyncio.sleep(_PAUSE_S_MIN + rng.random() * (_PAUSE_S_MAX - _PAUSE_S_MIN))
            if names:
                is_due = missing and loop.time() >= end
                name = rng.choice(deaths if is_due else names)
                missing = missing and name not in deaths
                await self._inject(name)

    async def _inject(self, name: str) -> None:
        self._simulator.trace("fault", name)
        self._simulator.faults[name] += 1
        if name in self._harmless:
            await self._injectors[name]()
            return
        with self._conditions.disturbing():
            await self._injectors[name]()
