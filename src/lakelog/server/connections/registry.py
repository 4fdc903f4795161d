"""The open connections of a broker's clients, with their shared memory, turns and limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lakelog.base.memory_budget import MemoryBudget
from lakelog.runtime.api import Clock
from lakelog.runtime.loop_iterations import LoopIterations
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.limits import AcceptRate, Limits, SharedLimit
from lakelog.server.connections.request_budget import RequestBudget
from lakelog.server.connections.request_memory import RequestMemory
from lakelog.server.log_limits import ClosingLog

_UNREAD = "unread responses take more than 256 MiB"


class ConnectionRegistry:
    """One for all listeners of a broker. Iterates in the order in which clients connected."""

    def __init__(self, clock: Clock, iterations: LoopIterations, budget: MemoryBudget) -> None:
        self._open: dict[Connection, None] = {}
        self._of_host: Counter[str] = Counter()
        self.budget = budget
        self.memory = RequestMemory(budget.received)
        self.iterations = RequestBudget(clock, iterations)
        self.accept_rate = AcceptRate(clock)
        self.closings = ClosingLog(clock)
        self.unread = SharedLimit(budget.unread, self.closings, _UNREAD)
        self.refused = 0
        """Connections beyond a limit that listeners have closed, or could not accept."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    def limits(self, frame_size_max: int) -> Limits:
        """Return the limits of a connection whose requests have at most `frame_size_max` bytes."""
        return Limits(frame_size_max, self.memory, self.unread, self.iterations)

    def count_from(self, host: str) -> int:
        """Return the number of open connections from one address."""
        return self._of_host.get(host, 0)

    def add(self, connection: Connection) -> None:
        """Count an accepted connection until `discard`."""
        self._open[connection] = None
        self._of_host[connection.session.peer[0]] += 1

    def discard(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        if connection not in self._open:
            return
        del self._open[connection]
        host = connection.session.peer[0]
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
