"""Counts over all loaded shards of a coordinator, kept as shards change instead of being summed.

A shard counts while it loads its log, too, but only what loaded shards count is in the total.
"""

from __future__ import annotations


class SharedCount:
    """The total over the loaded shards of one coordinator."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class ShardCount:
    """The part of one shard in a shared count."""

    __slots__ = ("_is_open", "_shared", "value")

    def __init__(self, shared: SharedCount) -> None:
        self._shared = shared
        self._is_open = False
        self.value = 0

    def add(self, more: int) -> None:
        """Raise the count by `more`, or lower it if that is negative."""
        self.value += more
        if self._is_open:
            self._shared.total += more

    def open(self) -> None:
        """Include the shard in the total: its log has been replayed."""
        assert not self._is_open
        self._is_open = True
        self._shared.total += self.value

    def close(self) -> None:
        """Take the shard out of the total; it may still change, which then counts nowhere."""
        if self._is_open:
            self._is_open = False
            self._shared.total -= self.value
            assert self._shared.total >= 0
