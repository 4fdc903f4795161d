"""Faults of one machine of a cluster: a full, failing or damaged disk, or slow threads.

They overlap with deaths and with faults of the network, which come in sequences of their own.
"""

from __future__ import annotations

import asyncio

from simulator.cluster.plan import SESSION_S
from simulator.cluster.scene import Scene
from simulator.faults.broker_faults import Injector
from simulator.faults.derived_files import derived_files, flip_in_one

_THREAD_S = 2.0
"""How long a step of a slow recovery takes, before and after its work."""


class MachineFaults(Scene):
    """The faults of a plan, as injectors of its nemesis."""

    @property
    def injectors(self) -> dict[str, Injector]:
        """By the names of the faults in a plan."""
        return {
            "disk full": self._disk_full,
            "disk error": self._disk_error,
            "slow recovery": self._slow_recovery,
            "flipped bit": self._flipped_bit,
        }

    async def _disk_full(self) -> None:
        """Leave a broker little room on its disk, for a session and more."""
        await self._faults.fill_disk(self._seconds)

    async def _disk_error(self) -> None:
        """Fail operations on a kind of file of one broker, and restart it later."""
        host = await self._faults.fail_disk(self._seconds, times=(1, 3, 1000))
        await self._come_back([host])

    def _seconds(self) -> float:
        return SESSION_S * (0.5 + 2 * self._rng.random())

    async def _slow_recovery(self) -> None:
        """Kill a broker that then needs long to open its logs; often another one restarts, too."""
        host = self._faults.some_broker()
        host.kill()
        host.slow_threads(_THREAD_S)
        others = [other for other in self._hosts if other is not host]
        starts = [host]
        if self._rng.random() < 0.5:
            starts.append(self._rng.choice(others))
            starts[-1].kill()
        await asyncio.gather(*(each.bring_back() for each in starts))
        host.slow_threads()

    async def _flipped_bit(self) -> None:
        """Kill a broker, and flip one bit of a file that it can rebuild."""
        host = self._faults.some_broker()
        host.kill()
        flip_in_one(host, derived_files(host), self._rng)
        await self._come_back([host])
