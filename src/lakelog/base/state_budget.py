"""A budget of memory for the state that clients make the broker keep: groups, offsets,
transactional ids and fetch sessions.

Requests and responses are short-lived; this state stays until it expires, so the sum of it is
bounded in bytes. The owners of the state estimate its size and report each change. Loading a log
may exceed the budget: the sum only decides whether state may grow.
"""

from __future__ import annotations

BYTES_MAX = 256 << 20
_SHARE_DIVISOR = 8


def text_bytes(text: str | None) -> int:
    """Return an upper bound of the memory of a string, in bytes; 0 for None."""
    if text is None:
        return 0
    return 64 + (len(text) if text.isascii() else 4 * len(text))


class StateBudget:
    """The bytes that all state of one broker takes and may take."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        """`bytes_max` is the value of `lakelog.coordinator.state.max.bytes`."""
        self.bytes_max = bytes_max
        self.share_max = bytes_max // _SHARE_DIVISOR
        """Limit for one group or one transactional id, in bytes."""
        self.total = 0
        self.leaving = 0
        """Bytes of `total` whose removal is decided but not yet committed to a log."""

    def has(self, more: int) -> bool:
        """Return whether the state may grow by `more` bytes."""
        return more <= 0 or self.total - self.leaving + more <= self.bytes_max


class StateAccount:
    """The bytes that one shard takes of the budget, by group or transactional id."""

    def __init__(self, budget: StateBudget) -> None:
        self._budget = budget
        self._names: dict[str, int] = {}
        self._closed = False

    def note(self, name: str, more: int) -> None:
        """Add `more` bytes to those of `name`; a negative number releases bytes."""
        if self._closed or not more:
            return
        size = self._names.get(name, 0) + more
        assert size >= 0, f"{name} released {-size} bytes more than it took"
        self._budget.total += more
        if size:
            self._names[name] = size
        else:
            del self._names[name]

    def of(self, name: str) -> int:
        """Return the bytes of `name`."""
        return self._names.get(name, 0)

    def may_grow(self, name: str, more: int) -> bool:
        """Return whether `more` bytes fit the budget and the share of `name`."""
        if more <= 0:
            return True
        return self.of(name) + more <= self._budget.share_max and self._budget.has(more)

    def close(self) -> None:
        """Release all bytes of the shard and ignore its later changes."""
        self._closed = True
        self._budget.total -= sum(self._names.values())
        assert self._budget.total >= 0
        self._names.clear()
