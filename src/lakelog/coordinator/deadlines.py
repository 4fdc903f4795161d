"""Timers as data: deadlines that a shard keeps and its host watches.

Moving a deadline back, which every heartbeat does, costs one dictionary entry: the heap keeps the
old time and looks again when it comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_STALE_ENTRIES_MAX = 64
"""Forgotten heap entries that are kept beside as many as there are live ones."""


class Deadlines(Generic[K]):
    """Times in milliseconds of the monotonic clock, at most one for each key."""

    __slots__ = ("_at", "_heap", "_queued", "_serial")

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._queued: dict[K, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def set(self, key: K, deadline_ms: int) -> None:
        """Replaces an earlier deadline of `key`."""
        self._at[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        self._at.pop(key, None)
        if len(self._heap) > 2 * len(self._at) + _STALE_ENTRIES_MAX:
            self._rebuild()

    def next(self) -> int | None:
        """When to look again; nothing is due before. None if there is no deadline."""
        return self._heap[0][0] if self._at else None

    def pop_due(self, now_ms: int) -> K | None:
        """Takes out one key whose deadline has come, the earliest first."""
        while self._heap and self._heap[0][0] <= now_ms:
            time, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != time:
                continue
            del self._queued[key]
            deadline = self._at.get(key)
            if deadline is None:
                continue
            if deadline <= now_ms:
                del self._at[key]
                return key
            self._push(key, deadline)
        return None

    def _push(self, key: K, deadline_ms: int) -> None:
        self._serial += 1
        self._queued[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, self._serial, key))

    def _rebuild(self) -> None:
        self._heap.clear()
        self._queued.clear()
        for key, deadline in self._at.items():
            self._push(key, deadline)
