"""The listeners of a broker, which bind and announce addresses, and the connections that they have
accepted.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterator

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.endpoint import Endpoint
from lakelog.base.events import event
from lakelog.base.memory_budget import MemoryBudget
from lakelog.runtime.api import Clock, Disk, Listener, Net, Socket, Tasks
from lakelog.runtime.loop_iterations import LoopIterations
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.limits import AcceptRate, Limits, SharedLimit
from lakelog.server.connections.receive_buffer import RequestMemory
from lakelog.server.connections.request_budget import RequestBudget
from lakelog.server.connections.request_sink import RequestSink
from lakelog.server.connections.session import ClientSession
from lakelog.server.log_limits import ClosingLog
from lakelog.server.options import (
    Environment,
    ListenError,
    ServeOptions,
    StartError,
    is_every_interface,
)

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


logger = logging.getLogger(__name__)

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_EXHAUSTED_PAUSE_S = 0.1
_REFUSALS_NOTED_S = 5.0


class Acceptor:
    """One bound listener.

    Args:
        name: the listener's name, which chooses the advertised address.
        config: returns the configuration in force. Above `max.connections`, and above
            `max.connections.per.ip` of one address, a new connection is closed at once;
            `max.connection.creation.rate` delays it.
        connections_max: connections for which the process has descriptors; the lower limit holds.
    """

    def __init__(
        self,
        name: str,
        listener: Listener,
        sink: RequestSink[Connection],
        connections: ConnectionRegistry,
        net: Net,
        disk: Disk,
        tasks: Tasks,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        connections_max: int,
    ) -> None:
        self.name = name
        self.address = listener.address
        self._listener = listener
        self._sink = sink
        self._connections = connections
        self._net = net
        self._disk = disk
        self._tasks = tasks
        self._clock = clock
        self._config = config
        self._connections_max = connections_max
        frame_size_max = config().get_int("socket.request.max.bytes")
        self._limits = connections.limits(frame_size_max)
        self._security_protocol = config().security_protocol(name)
        self._refused = 0
        self._closed = False

    def start(self) -> None:
        """Accept connections, for the first time or after a pause; none after `close`."""
        if not self._closed:
            self._net.on_acceptable(self._listener, self._on_acceptable)

    def close(self) -> None:
        """Release the address; accepted connections stay open."""
        if not self._closed:
            self._closed = True
            self._net.on_acceptable(self._listener, None)
            self._listener.close()

    def _on_acceptable(self) -> None:
        """Accept at least one connection, and more while this loop iteration has time for
        requests."""
        iterations = self._connections.iterations
        while not self._must_wait():
            try:
                sock = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._on_failed_accept(error)
                return
            self._connections.accept_rate.take()
            self._open_connection(sock)
            iterations.left -= 1
            if iterations.left <= 0 and iterations.is_over():
                return

    def _must_wait(self) -> bool:
        per_second = self._config().get_int("max.connection.creation.rate")
        delay_s = self._connections.accept_rate.delay_s(per_second)
        if delay_s:
            self._net.on_acceptable(self._listener, None)
            self._tasks.call_later(delay_s, self.start)
        return delay_s > 0

    def _open_connection(self, sock: Socket) -> None:
        try:
            connection = Connection(
                sock,
                ClientSession(sock, self.name, self._security_protocol),
                self._sink,
                self._net,
                self._disk,
                self._tasks,
                self._limits,
            )
        except OSError:  # the client is gone, so the socket has no peer
            sock.close()
            return
        limit = self._exceeded_limit(connection.session.peer[0])
        if limit is not None:
            sock.close()
            self._note_refusal(limit)
            return
        connection.last_active = self._clock.monotonic()
        self._connections.add(connection)
        connection.open()

    def _exceeded_limit(self, host: str) -> str | None:
        """Return the limit that one more connection from this address would exceed, if any."""
        config, connections = self._config(), self._connections
        most = config.get_int("max.connections")
        if len(connections) >= most:
            return f"max.connections={most}"
        if len(connections) >= self._connections_max:
            return f"the limit of open files (ulimit -n) leaves {self._connections_max} to clients"
        most = config.get_int("max.connections.per.ip")
        if connections.count_from(host) >= most:
            return f"max.connections.per.ip={most} of {host}"
        return None

    def _note_refusal(self, limit: str) -> None:
        """Log one line for all rejections of some seconds: a crowd must not fill the log."""
        self._connections.refused += 1
        self._refused += 1
        if self._refused == 1:
            self._tasks.call_later(_REFUSALS_NOTED_S, self._report_refusals, limit)

    def _report_refusals(self, limit: str) -> None:
        logger.warning(
            "%s: %d connections refused, %s",
            self.name,
            self._refused,
            limit,
            extra=event("connections_refused", listener=self.name, connections=self._refused),
        )
        self._refused = 0

    def _on_failed_accept(self, error: OSError) -> None:
        """Pause if descriptors or memory are used up: the next accept would fail as well."""
        if error.errno in _EXHAUSTED:
            self._note_refusal(f"no connection can be accepted: {error.strerror}")
            self._net.on_acceptable(self._listener, None)
            self._tasks.call_later(_EXHAUSTED_PAUSE_S, self.start)
        else:
            logger.error(
                "%s: cannot accept a connection: %s",
                self.name,
                error,
                extra=event("accept_failed", listener=self.name),
            )


class Listeners:
    """All listeners of a broker, from `bind` to `close`. `config` returns the settings in force."""

    def __init__(
        self,
        options: ServeOptions,
        environment: Environment,
        sink: RequestSink[Connection],
        connections: ConnectionRegistry,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._options = options
        self._environment = environment
        self._sink = sink
        self._connections = connections
        self._config = config
        self._acceptors: list[Acceptor] = []

    @property
    def bound(self) -> tuple[tuple[str, str, int], ...]:
        """The (name, host, port) of each listener, with the real port if 0 was requested."""
        return tuple((acceptor.name, *acceptor.address) for acceptor in self._acceptors)

    def bind(self) -> None:
        """Bind every address. Raises `StartError`, after releasing the addresses bound so far.

        The addresses are bound before the data folder is opened, so that a second broker by
        mistake fails at once. No client is served before `start`.
        """
        if self._options.is_clustered:
            self._check_advertised()
        environment = self._environment
        backlog = self._options.config.get_int("socket.listen.backlog.size")
        for name, host, port in self._options.listeners:
            try:
                listener = environment.net.listen(host, port, backlog=backlog)
            except OSError as error:
                self.close()
                raise ListenError(f"{host}:{port}", error) from error
            self._acceptors.append(
                Acceptor(
                    name,
                    listener,
                    self._sink,
                    self._connections,
                    environment.net,
                    environment.disk,
                    environment.tasks,
                    environment.clock,
                    self._config,
                    environment.connections_max,
                )
            )

    def _check_advertised(self) -> None:
        """Raise `StartError` for a listener without an address that other brokers can use."""
        for name, host, _ in self._options.listeners:
            if is_every_interface(host) and name not in self._options.advertise:
                raise StartError(
                    f"listener {name} listens on every interface, and the other brokers of the "
                    f"cluster need one address: add --advertise {name}=HOST:PORT"
                )

    def start(self) -> None:
        """Accept connections."""
        for acceptor in self._acceptors:
            acceptor.start()

    def close(self) -> None:
        """Release the addresses; accepted connections stay open."""
        for acceptor in self._acceptors:
            acceptor.close()

    def advertised(self) -> tuple[Endpoint, ...]:
        """Return the addresses that the options advertise."""
        return tuple(
            Endpoint(name, host, port) for name, (host, port) in self._options.advertise.items()
        )

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return an address of each listener: the advertised one, else the bound one."""
        addresses = {acceptor.name: acceptor.address for acceptor in self._acceptors} | dict(
            self._options.advertise
        )
        return tuple(Endpoint(name, *address) for name, address in addresses.items())
