"""Closes connections that are idle, stuck, or hold memory that others wait for.

While the memory suffices, a connection may be slow. Once a connection has waited for `PATIENCE_S`,
connections that need more than `FINISH_S` for the rest of their request at their present rate are
closed, the slowest first, until there is enough for the waiting ones (KIP-72). If all hold a part
and have waited for more for `DEADLOCK_S`, the latest of them are closed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.runtime.api import Clock
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.listeners import ConnectionRegistry

BUFFER_IDLE_S = 10.0
"""Seconds of silence after which a receive buffer is given back."""
PROGRESS_S = 30.0
"""Seconds for which a half request, or responses that block their connection, may progress more
slowly than `RATE_MIN`."""
RATE_MIN = 1024
"""Bytes per second."""
PATIENCE_S = 10.0
"""Seconds of waiting after which slow connections are closed."""
FINISH_S = 60.0
"""Seconds that a connection may need for the rest of its request."""
DEADLOCK_S = 30.0
"""Seconds of waiting after which waiting connections are closed."""

_STUCK = "its request makes no progress, or it does not read its responses"
_NEEDED = "others wait for the memory that its request holds (queued.max.request.bytes)"


class _Progress:
    """The progress of one connection since it began to owe bytes; times are monotonic."""

    __slots__ = ("awaited", "last_active", "since", "start", "unchanged_since", "unhandled")

    def __init__(self, now: float) -> None:
        self.since = self.unchanged_since = now
        self.start = self.awaited = self.unhandled = 0
        self.last_active = -inf

    def look(self, connection: Connection, now: float) -> None:
        before = self.last_active, self.unhandled, self.awaited
        self.last_active = connection.last_active
        self.unhandled = connection.received.unhandled_bytes
        self.awaited = connection.awaited_bytes
        if before != (self.last_active, self.unhandled, self.awaited):
            self.unchanged_since = now  # any progress: then there is no deadlock
        if not self.awaited or self.awaited > self.start or self.last_active != before[0]:
            self._restart(now)

    def _restart(self, now: float) -> None:
        self.since, self.start = now, self.awaited

    def is_stuck(self, now: float) -> bool:
        """Return whether the peer was slower than `RATE_MIN`; decided once per `PROGRESS_S`."""
        elapsed_s = now - self.since
        if elapsed_s <= PROGRESS_S:
            return False
        if self.start - self.awaited < elapsed_s * RATE_MIN:
            return True
        self._restart(now)
        return False

    def seconds_left(self, now: float) -> float:
        """Return the time until the peer has sent or read the rest; 0 if its rate is unknown."""
        elapsed_s, done = now - self.since, self.start - self.awaited
        if not elapsed_s:
            return 0.0
        return self.awaited * elapsed_s / done if done else inf


class ConnectionSweep:
    """The periodic check of all connections; `release` is called for each of them."""

    def __init__(
        self,
        connections: ConnectionRegistry,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        release: Callable[[Connection], object],
    ) -> None:
        self._connections = connections
        self._memory = connections.memory
        self._closings = connections.closings
        self._config = config
        self._clock = clock
        self._release = release
        self._progress: dict[Connection, _Progress] = {}

    def run(self) -> None:
        """Check all connections once; to be called every few seconds.

        A connection is idle after `connections.max.idle.ms`, as in Kafka.
        """
        now = self._clock.monotonic()
        idle_s = self._config().get_int("connections.max.idle.ms") / 1000
        earlier, self._progress = self._progress, {}
        for connection in list(self._connections):
            self._release(connection)
            silent_s = now - connection.last_active
            if 0 < idle_s < silent_s and not connection.pending:
                self._closings.expired += 1
                connection.close()
                continue
            awaited = connection.awaited_bytes
            if self._memory.is_short or (silent_s > BUFFER_IDLE_S and not awaited):
                connection.drop_idle_buffer()
            if awaited or connection.received.unhandled_bytes:
                self._watch(connection, earlier.get(connection) or _Progress(now), now)
        if self._memory.is_short:
            self._close_slow(now)
            self._close_deadlocked(now)

    def _watch(self, connection: Connection, progress: _Progress, now: float) -> None:
        progress.look(connection, now)
        if progress.is_stuck(now):
            self._close(connection, _STUCK)
        else:
            self._progress[connection] = progress

    def _waited(self, now: float, patience_s: float) -> dict[Connection, int]:
        """Return the bytes that each connection wants that has waited so long without progress."""
        waiting = self._memory.waiting
        return {
            connection: waiting[connection.received].size
            for connection, progress in self._progress.items()
            if connection.received in waiting and now - progress.unchanged_since >= patience_s
        }

    def _close_slow(self, now: float) -> None:
        missing = sum(self._waited(now, PATIENCE_S).values())
        # The slowest first: its memory would be needed for the longest time. A fast client with a
        # large request is not at fault.
        left_s = {
            connection: progress.seconds_left(now)
            for connection, progress in self._progress.items()
            if connection.received.held_bytes
        }
        for connection in sorted(left_s, key=left_s.__getitem__, reverse=True):
            if missing <= 0 or left_s[connection] <= FINISH_S:
                return
            missing -= connection.received.held_bytes
            self._close(connection, _NEEDED)

    def _close_deadlocked(self, now: float) -> None:
        """Close the latest of the waiting connections, until the others have enough."""
        waited = self._waited(now, DEADLOCK_S)
        missing = sum(waited.values())
        since = {connection: self._progress[connection].unchanged_since for connection in waited}
        for connection in sorted(since, key=since.__getitem__, reverse=True):
            missing -= waited[connection]
            if missing <= 0:
                return
            if connection.received.held_bytes:
                missing -= connection.received.held_bytes
                self._close(connection, _NEEDED)

    def _close(self, connection: Connection, reason: str) -> None:
        self._closings.closing(connection.session.peer_name, reason)
        connection.close()
