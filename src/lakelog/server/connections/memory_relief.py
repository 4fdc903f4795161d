"""Closes connections that hold memory for half a request and make hardly any progress.

No connection is closed for being slow while the memory suffices. Once a connection has waited for
`PATIENCE_S`, connections that would need more than `FINISH_S` for the rest of their request at the
rate of the last seconds are closed, the slowest first, until there is enough for the waiting ones.
If all hold a part and have waited for more for `DEADLOCK_S`, the latest of them are closed instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from lakelog.server.connections.connection import Connection
from lakelog.server.connections.request_memory import RequestMemory
from lakelog.server.event_log.closing_log import ClosingLog

PATIENCE_S = 10.0
"""Seconds of waiting after which slow connections are closed."""
FINISH_S = 60.0
"""Seconds that a connection may need for the rest of its request."""
DEADLOCK_S = 30.0
"""Seconds of waiting after which waiting connections are closed."""
_REASON = "others wait for the memory that its request holds (queued.max.request.bytes)"


class _Progress(NamedTuple):
    """The progress of a connection; at the same request while the first two are the same."""

    last_active: float
    received: int
    awaited: int


class MemoryRelief:
    """Takes memory back from slow connections while others wait for it (KIP-72)."""

    def __init__(
        self, connections: Iterable[Connection], memory: RequestMemory, closings: ClosingLog
    ) -> None:
        self._connections = connections
        self._memory = memory
        self._closings = closings
        self._now = 0.0
        self._looks: dict[Connection, _Progress] = {}
        self._waits: dict[Connection, tuple[float, _Progress]] = {}

    def run(self, now: float) -> None:
        """Compare the progress of all connections with that of the last call.

        To be called every few seconds with `now`, in seconds on the monotonic clock.
        """
        elapsed_s, self._now = now - self._now, now
        before, self._looks = self._looks, {}
        waits, self._waits = self._waits, {}
        if not self._memory.is_short:
            return
        for connection in list(self._connections):
            connection.drop_idle_buffer()
            look = _Progress(
                connection.last_active,
                connection.received.unhandled_bytes,
                connection.awaited_bytes,
            )
            if connection.received.held_bytes:
                self._looks[connection] = look
            if connection.received.is_waiting:
                since, first = waits.get(connection, (now, look))
                # The wait begins again with any progress: then there is no deadlock.
                self._waits[connection] = (since, look) if first == look else (now, look)
        self._close_slow(before, elapsed_s)
        self._close_deadlocked()

    def _waited(self, patience_s: float) -> dict[Connection, int]:
        """Return the bytes that each connection wants that has waited so long without progress."""
        waiting = self._memory.waiting
        return {
            connection: waiting[connection.received].size
            for connection, (since, _) in self._waits.items()
            if connection.received in waiting and self._now - since >= patience_s
        }

    def _close_slow(self, before: dict[Connection, _Progress], elapsed_s: float) -> None:
        missing = sum(self._waited(PATIENCE_S).values())
        left_s = {
            connection: _seconds_left(before.get(connection), look, elapsed_s)
            for connection, look in self._looks.items()
        }
        for connection in sorted(left_s, key=left_s.__getitem__, reverse=True):
            if missing <= 0 or left_s[connection] <= FINISH_S:
                return
            missing -= connection.received.held_bytes
            self._close(connection)

    def _close_deadlocked(self) -> None:
        """Close the latest of the waiting connections, until the others have enough."""
        waited = self._waited(DEADLOCK_S)
        missing = sum(waited.values())
        for connection in sorted(waited, key=lambda one: self._waits[one][0], reverse=True):
            missing -= waited[connection]
            if missing <= 0:
                return
            if connection.received.held_bytes:
                missing -= connection.received.held_bytes
                self._close(connection)

    def _close(self, connection: Connection) -> None:
        self._closings.closing(connection.session.peer_name, _REASON)
        connection.close()


def _seconds_left(before: _Progress | None, look: _Progress, elapsed_s: float) -> float:
    """Return the seconds until the peer has sent or read the rest, at its rate so far."""
    if before is None or before.last_active != look.last_active:
        return 0.0
    if not before.awaited or not look.awaited:
        return 0.0
    progress = before.awaited - look.awaited
    return look.awaited * elapsed_s / progress if progress > 0 else inf
