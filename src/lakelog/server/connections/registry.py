"""The open connections of a broker's clients, and what they share: memory, turns, limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lakelog.runtime.api import Clock, Tasks
from lakelog.server.connections.accept_rate import AcceptRate
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.request_memory import RequestMemory
from lakelog.server.connections.request_turns import RequestTurns
from lakelog.server.connections.shared_limit import unread_responses
from lakelog.server.event_log.closing_log import ClosingLog


class ConnectionRegistry:
    """One for all listeners of a broker. Iterates in the order in which clients connected."""

    def __init__(self, clock: Clock, tasks: Tasks, memory: RequestMemory) -> None:
        self._open: dict[Connection, None] = {}
        self._of_host: Counter[str] = Counter()
        self.memory = memory
        self.turns = RequestTurns(clock, tasks)
        self.accept_rate = AcceptRate(clock)
        self.closings = ClosingLog(clock)
        self.unread = unread_responses(self.closings)
        self.refused = 0
        """Connections beyond a limit that listeners have closed, or could not accept."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    def count_from(self, host: str) -> int:
        """Return the number of open connections from one address."""
        return self._of_host.get(host, 0)

    def add(self, connection: Connection) -> None:
        self._open[connection] = None
        self._of_host[connection.session.peer[0]] += 1

    def discard(self, connection: Connection) -> None:
        """Forget a connection that is closed; its unread responses are gone."""
        self.unread.hold(connection, 0)
        if connection not in self._open:
            return
        del self._open[connection]
        host = connection.session.peer[0]
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
