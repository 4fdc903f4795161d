"""Which partition a record goes to when the caller does not say."""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.murmur2 import partition_for_key

Partitioner = Callable[[str, bytes, int], int]
"""Topic, key and number of partitions to a partition."""


def by_key(topic: str, key: bytes, count: int) -> int:
    """As Java's producer does, so that both put a key into the same partition."""
    return partition_for_key(key, count)


class Sticky:
    """Keyless records fill one partition's batch before they move on to the next partition's."""

    __slots__ = ("_current",)

    def __init__(self, start: int) -> None:
        self._current = start

    def current(self, count: int) -> int:
        return self._current % count

    def move_on(self, partition: int, count: int) -> None:
        """A batch of `partition` is full."""
        if self.current(count) == partition:
            self._current = (partition + 1) % count
