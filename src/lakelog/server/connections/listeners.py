"""The listeners of a broker: the addresses that it binds, accepts connections at and announces."""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.endpoint import Endpoint
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.listener import Acceptor
from lakelog.server.connections.registry import ConnectionRegistry
from lakelog.server.connections.request_sink import RequestSink
from lakelog.server.environment import Environment
from lakelog.server.options import ListenError, ServeOptions, StartError, is_every_interface


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
        return tuple((each.name, *each.address) for each in self._acceptors)

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
        addresses = {each.name: each.address for each in self._acceptors} | dict(
            self._options.advertise
        )
        return tuple(Endpoint(name, *address) for name, address in addresses.items())
