"""The engine of one seed: virtual time, streams of random numbers, and a hash of all events.

All randomness comes from `random_stream` and all time from `loop`. Each part draws from a stream of
its own, so that more draws in one part do not change another. The same seed therefore executes the
same events in the same order; equal values of `hash` show it.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter

from simulator.engine.clock import WALL_START_MS
from simulator.engine.loop import SimulatedLoop


class Simulator:
    """Shared by every part of a world; `faults` counts injected faults by name."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = SimulatedLoop(self.random_stream("loop"))
        self.faults: Counter[str] = Counter()
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def hash(self) -> str:
        """The hash of all events so far, in hexadecimal."""
        return self._hash.hexdigest()

    def random_stream(self, name: str) -> random.Random:
        """Return the random numbers of the part `name`: equal for equal seeds and names."""
        # The name is hashed as text, which is the same in each run, unlike `hash`.
        return random.Random(f"{self.seed} {name}")

    def trace(self, *event: object) -> None:
        """Add an event to the hash, with the step of the loop at which it happened."""
        self._hash.update(repr((self.loop.steps, event)).encode())

    def wall_ms(self) -> int:
        """Return the correct wall time in milliseconds; clocks of machines may differ from it."""
        return WALL_START_MS + int(self.loop.time() * 1000)
