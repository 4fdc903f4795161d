"""The conditions that excuse clients and brokers: the phase of a run, disturbances, lost log ends.

A checker compares the time of a request with these times. A broker may answer late while a fault
disturbs it, and may forget state that was lost with the end of a log. All times are the loop's, in
seconds; -1 is "never".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from simulator.engine.loop import SimulatedLoop

RECOVERY_S = 1.5
"""How long after a disturbance a broker may need to catch up, and bytes to arrive."""


class Conditions:
    """Shared by the clients, the faults and the observers of one world."""

    def __init__(self, loop: SimulatedLoop, recovery_s: float = RECOVERY_S) -> None:
        self._loop = loop
        self._recovery_s = recovery_s
        self.is_troubled = True
        """Whether faults may still be injected."""
        self.is_settling = False
        """Whether members no longer leave or join groups."""
        self.is_ending = False
        """Whether clients finish."""
        self.leapt_at = -1.0
        """When a machine's wall clock leapt last."""
        self.cut_at = -1.0
        """When a broker last found a log without its end."""
        self._disturbances = 0
        self._disturbed_at = 0.0
        self._acknowledgement: asyncio.Future[None] | None = None

    @contextlib.contextmanager
    def disturbing(self) -> Iterator[None]:
        """Excuse late responses for the time of a `with` block."""
        self._disturbances += 1
        try:
            yield
        finally:
            self._disturbances -= 1
            assert self._disturbances >= 0
            self._disturbed_at = self._loop.time()

    def was_disturbed(self, since: float) -> bool:
        """Return whether a fault may have kept a client from its broker since this time."""
        return self._disturbances > 0 or self._disturbed_at + self._recovery_s >= since

    async def next_acknowledgement(self, timeout_s: float) -> None:
        """Wait until a client receives an acknowledgement, or for `timeout_s` seconds."""
        self._acknowledgement = self._loop.create_future()
        await asyncio.wait({self._acknowledgement}, timeout=timeout_s)

    def on_acknowledged(self) -> None:
        """Note that a client received an acknowledgement."""
        if self._acknowledgement is not None and not self._acknowledgement.done():
            self._acknowledgement.set_result(None)
