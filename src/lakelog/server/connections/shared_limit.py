"""A bound on what all connections make the broker hold of one kind, all of them together.

It is kept whenever one of them comes to hold more, not from time to time: a burst is no way around
it. Those that hold the most are closed, as nobody says who he is, and an eighth more than need be,
so that the next one does not have to look at all of them again.
"""

from __future__ import annotations

from lakelog.server.connections.connection import Connection
from lakelog.server.event_log.closing_log import ClosingLog

_SPARE_DIVISOR = 8
UNREAD_MAX = 256 * 1024 * 1024
"""Bytes that responses may take together that peers do not read."""


class SharedLimit:
    """`most` is in bytes; 0 or less is none. `reason` is what the log says of who is closed."""

    def __init__(self, most: int, closings: ClosingLog, reason: str) -> None:
        self._most = most
        self._closings = closings
        self._reason = reason
        self._held: dict[Connection, int] = {}
        self.total = 0
        """Bytes of all connections."""

    def hold(self, connection: Connection, size: int) -> None:
        """`connection` holds `size` bytes now, whatever it held before."""
        more = size - self._held.get(connection, 0)
        self.total += more
        if size:
            self._held[connection] = size
        else:
            self._held.pop(connection, None)
        if more > 0 and 0 < self._most < self.total:
            self._close_largest()

    def add(self, connection: Connection, size: int) -> None:
        """`connection` holds `size` bytes more, or less if that is negative."""
        self.hold(connection, self._held.get(connection, 0) + size)

    def _close_largest(self) -> None:
        """What closed ones still hold goes by itself; nobody is closed in their stead."""
        held = {entry: size for entry, size in self._held.items() if not entry.closed}
        left, enough = sum(held.values()), self._most - self._most // _SPARE_DIVISOR
        if left <= self._most:
            return
        for connection in sorted(held, key=held.__getitem__, reverse=True):
            if left <= enough:
                return
            left -= held[connection]
            self._closings.closing(connection.session.peer_name, self._reason)
            connection.close()


def unread_responses(closings: ClosingLog) -> SharedLimit:
    text = "responses that nobody reads take more than 256 MiB"
    return SharedLimit(UNREAD_MAX, closings, text)
