"""A budget for what clients make the broker remember: coordinator state and fetch sessions.

Requests and responses come and go; this stays until it expires, so all of it together is bounded in
bytes. Its owners estimate those and keep the sum with each change. Loading a log may exceed the
budget: the sum only decides whether something may grow.
"""

from __future__ import annotations

BYTES_MAX = 256 << 20
_SHARE_DIVISOR = 8


def text_bytes(text: str | None) -> int:
    """Memory of a string, at most; 0 for None."""
    if text is None:
        return 0
    return 64 + (len(text) if text.isascii() else 4 * len(text))


class StateRoom:
    """`bytes_max` is `lakelog.coordinator.state.max.bytes`. One for a broker."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.share_max = bytes_max // _SHARE_DIVISOR
        """Bytes that one group or one transactional id may take."""
        self.total = 0
        self.leaving = 0
        """Bytes of `total` whose removal is on its way to a log."""

    def has(self, more: int) -> bool:
        """Whether the state may grow by `more` bytes."""
        return more <= 0 or self.total - self.leaving + more <= self.bytes_max


class StateAccount:
    """The bytes of one shard, by name: of a group or of a transactional id."""

    def __init__(self, room: StateRoom) -> None:
        self.room = room
        self._names: dict[str, int] = {}
        self._closed = False

    def note(self, name: str, more: int) -> None:
        """`name` takes `more` bytes more, or less if that is negative."""
        if self._closed or not more:
            return
        size = self._names.get(name, 0) + more
        assert size >= 0, f"{name} gave back {-size} bytes that it did not take"
        self.room.total += more
        if size:
            self._names[name] = size
        else:
            del self._names[name]

    def of(self, name: str) -> int:
        """Bytes."""
        return self._names.get(name, 0)

    def may_grow(self, name: str, more: int) -> bool:
        """Whether there is room for `more` bytes, in all and within the share of `name`."""
        return more <= 0 or (self.of(name) + more <= self.room.share_max and self.room.has(more))

    def close(self) -> None:
        """Gives everything back: the shard is thrown away, and what it notes later is ignored."""
        self._closed = True
        self.room.total -= sum(self._names.values())
        self._names.clear()
