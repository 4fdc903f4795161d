"""A limit on the memory of one kind that all connections together make the broker hold.

It is enforced whenever a connection holds more, not periodically, so a burst cannot exceed it. The
connections that hold the most are closed: clients are not authenticated, so nothing else
distinguishes them. An eighth more than necessary is freed, so that the next excess does not look at
all connections again.
"""

from __future__ import annotations

from lakelog.server.connections.connection import Connection
from lakelog.server.event_log.closing_log import ClosingLog

_SPARE_DIVISOR = 8
UNREAD_MAX = 256 * 1024 * 1024
"""Bytes of all responses that peers do not read."""


class SharedLimit:
    """`most` is in bytes; 0 or less is no limit. `reason` is logged for closed connections."""

    def __init__(self, most: int, closings: ClosingLog, reason: str) -> None:
        self._most = most
        self._closings = closings
        self._reason = reason
        self._held: dict[Connection, int] = {}
        self.total = 0
        """Bytes of all connections."""

    def hold(self, connection: Connection, size: int) -> None:
        """Set the bytes that `connection` holds; close connections if all hold too many."""
        more = size - self._held.get(connection, 0)
        self.total += more
        if size:
            self._held[connection] = size
        else:
            self._held.pop(connection, None)
        if more > 0 and 0 < self._most < self.total:
            self._close_largest()

    def add(self, connection: Connection, size: int) -> None:
        """Add `size`, which may be negative, to the bytes that `connection` holds."""
        self.hold(connection, self._held.get(connection, 0) + size)

    def _close_largest(self) -> None:
        """Close the largest; bytes of closed connections will be freed and do not count."""
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
