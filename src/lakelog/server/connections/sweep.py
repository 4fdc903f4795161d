"""Closes idle and stuck connections, and takes back the receive buffers of silent ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.runtime.api import Clock
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.memory_relief import MemoryRelief
from lakelog.server.connections.registry import ConnectionRegistry

BUFFER_IDLE_S = 10.0
"""Seconds of silence after which a receive buffer is given back."""
PROGRESS_S = 30.0
"""Seconds for which a half request, or responses that block their connection, may progress more
slowly than `RATE_MIN`."""
RATE_MIN = 1024
"""Bytes per second."""


class _Progress(NamedTuple):
    """The bytes that a peer owed at a time, and the time of its last complete request."""

    seen: float
    awaited: int
    last_active: float


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
        self._closings = connections.closings
        self._config = config
        self._clock = clock
        self._release = release
        self._progress: dict[Connection, _Progress] = {}
        self._relief = MemoryRelief(connections, connections.memory, connections.closings)

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
            if 0 < idle_s < silent_s and not connection.is_waiting:
                self._closings.expired += 1
                connection.close()
            elif connection.awaited_bytes:
                self._watch(connection, earlier.get(connection), now)
            elif silent_s > BUFFER_IDLE_S:
                connection.drop_idle_buffer()
        self._relief.run(now)

    def _watch(self, connection: Connection, earlier: _Progress | None, now: float) -> None:
        latest = _Progress(now, connection.awaited_bytes, connection.last_active)
        if (
            earlier is None
            or earlier.last_active != latest.last_active
            or earlier.awaited < latest.awaited
        ):
            earlier = latest
        elapsed_s = now - earlier.seen
        if elapsed_s > PROGRESS_S:
            if earlier.awaited - latest.awaited < elapsed_s * RATE_MIN:
                self._closings.closing(
                    connection.session.peer_name,
                    "its request makes no progress, or it does not read its responses",
                )
                connection.close()
                return
            earlier = latest
        self._progress[connection] = earlier
