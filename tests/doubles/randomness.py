"""Repeatable randomness for tests."""

from __future__ import annotations

import random


class SeededRandom:
    """A `lakelog.runtime.api.Random`: equal seeds give equal numbers."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def below(self, end: int) -> int:
        return self._random.randrange(end)
