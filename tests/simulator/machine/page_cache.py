"""A disk with a page cache that may have evicted any range whenever the broker asks for it.

Only the calls that ask whether a range is resident show evictions. Reads take no virtual time, so
a read of an evicted range would not wait.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from doubles.disk import MemoryDisk
from lakelog.runtime.api import Buffer, Clock, File

_KEPT_S_MAX = 0.5
"""The longest time that a range stays resident after it was read ahead, in seconds."""


class PageCachedDisk(MemoryDisk):
    """`cold` is the chance that a requested range is not resident."""

    def __init__(self, clock: Clock, rng: random.Random, faults: Counter[str]) -> None:
        super().__init__(clock)
        self.cold = 0.0
        self._rng = rng
        self._faults = faults
        self._warm: dict[Path, tuple[int, int, float]] = {}
        """Start, end and expiry time of the last range read ahead of each file."""

    def is_resident(self, file: File, offset: int, size: int) -> bool:
        if not self.cold or self._is_warm(file, offset, size) or self._rng.random() >= self.cold:
            return True
        self._faults["not in the page cache"] += 1
        return False

    def read_resident(self, file: File, offset: int, size: int) -> Buffer | None:
        if not self.is_resident(file, offset, size):
            return None
        return super().read_resident(file, offset, size)

    def read_ahead(self, file: File, offset: int, size: int) -> bool:
        has_asked = super().read_ahead(file, offset, size)
        if not self.cold:
            return has_asked
        self._faults["read ahead"] += 1
        has_asked = not self._is_warm(file, offset, size)
        until = self.clock.monotonic() + self._rng.random() * _KEPT_S_MAX
        self._warm[file.path] = offset, offset + size, until
        return has_asked

    def _is_warm(self, file: File, offset: int, size: int) -> bool:
        start, end, until = self._warm.get(file.path, (0, 0, 0.0))
        return start <= offset and offset + size <= end and self.clock.monotonic() < until
