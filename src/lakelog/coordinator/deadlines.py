"""Timers as data: a shard keeps deadlines, its host watches the earliest.

Every heartbeat postpones a deadline. That costs one dictionary entry: the heap keeps the old time,
and the new deadline is checked when the old time comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_STALE_ENTRIES_MAX = 64
"""Stale heap entries to keep, in addition to as many as there are deadlines."""


class Deadlines(Generic[K]):
    """At most one deadline for each key, in milliseconds of the monotonic clock."""

    __slots__ = ("_heap", "_queued", "_serial", "at", "earliest")

    def __init__(self) -> None:
        self.at: dict[K, int] = {}
        """The deadlines by key; only the methods change them."""
        self._heap: list[tuple[int, int, K]] = []
        self._queued: dict[K, int] = {}
        self._serial = 0
        self.earliest: int | None = None
        """A time before which no deadline is due; None without deadlines."""

    def set(self, key: K, deadline_ms: int) -> None:
        """Set the deadline of `key`, in place of an earlier one."""
        self.at[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)
        self.earliest = self._heap[0][0]
        assert self.earliest <= deadline_ms, "the host would call the shard too late"

    def cancel(self, key: K) -> None:
        """Remove the deadline of `key`, if it has one."""
        self.at.pop(key, None)
        if len(self._heap) > 2 * len(self.at) + _STALE_ENTRIES_MAX:
            self._rebuild()
        self.earliest = self._heap[0][0] if self.at else None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the key with the earliest deadline, if that is due."""
        key = self._pop_due(now_ms)
        self.earliest = self._heap[0][0] if self.at else None
        return key

    def _pop_due(self, now_ms: int) -> K | None:
        while self._heap and self._heap[0][0] <= now_ms:
            time, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != time:
                continue
            del self._queued[key]
            deadline = self.at.get(key)
            if deadline is None:
                continue
            if deadline <= now_ms:
                del self.at[key]
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
        for key, deadline in self.at.items():
            self._push(key, deadline)
        assert len(self._heap) == len(self.at), "a stale entry is left"
