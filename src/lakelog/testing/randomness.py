"""Randomness that can be had again."""

from __future__ import annotations

import random


class SeededRandom:
    """A `Random` that repeats itself from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def below(self, end: int) -> int:
        return self._random.randrange(end)
