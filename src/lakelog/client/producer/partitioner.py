"""Chooses the partition of a record for which the caller has not set one."""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.murmur2 import partition_for_key

Partitioner = Callable[[str, bytes, int], int]
"""A function of topic, key and number of partitions that returns a partition."""


def by_key(topic: str, key: bytes, count: int) -> int:
    """Return the partition that Java's producer chooses for the key (murmur2)."""
    return partition_for_key(key, count)


class Sticky:
    """Chooses one partition for records without a key until its batch is full (KIP-480)."""

    __slots__ = ("_current",)

    def __init__(self, start: int) -> None:
        self._current = start

    def current(self, count: int) -> int:
        """Return the chosen partition; `count` is the number of partitions."""
        return self._current % count

    def set(self, partition: int) -> None:
        """Choose this partition."""
        self._current = partition

    def move_on(self, partition: int, count: int) -> None:
        """Choose the next partition, because a batch of `partition` is full."""
        if self.current(count) == partition:
            self._current = (partition + 1) % count
