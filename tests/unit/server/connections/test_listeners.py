"""The addresses that a broker binds and announces."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.endpoint import Endpoint
from lakelog.server.connections.listeners import Listeners
from lakelog.server.options import ListenError, ServeOptions, StartError
from memory_broker import MemoryBroker

TWO = "PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:9093"


SECURITY = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT"


class BoundListener:
    def __init__(self, net: FewPorts, address: tuple[str, int]) -> None:
        self._net = net
        self.address = address

    def close(self) -> None:
        self._net.bound.remove(self.address[1])


class FewPorts:
    """A network on which one port belongs to another process."""

    def __init__(self, taken: int = 0) -> None:
        self.taken = taken
        self.bound: list[int] = []
        self.accepting: list[int] = []

    def listen(self, host: str, port: int, *, backlog: int) -> BoundListener:
        if port == self.taken:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self.bound.append(port)
        return BoundListener(self, (host, port))

    def on_acceptable(self, listener: BoundListener, callback: object) -> None:
        if callback is not None:
            self.accepting.append(listener.address[1])


def listeners_over(net: FewPorts, addresses: str = TWO, **options: Any) -> Listeners:
    config = BrokerConfig({"listeners": addresses, "listener.security.protocol.map": SECURITY})
    with MemoryBroker() as world:
        server = world._server
        return Listeners(
            ServeOptions(Path("/data"), config, **options),
            replace(server._environment, net=cast(Any, net)),
            server._dispatcher,
            server._dispatcher.connections,
            lambda: config,
        )


def test_bound_addresses_accept_connections_from_start_to_close() -> None:
    net = FewPorts()
    listeners = listeners_over(net)
    listeners.bind()
    assert listeners.bound == (("PLAINTEXT", "127.0.0.1", 9092), ("INTERNAL", "127.0.0.1", 9093))
    assert net.accepting == []
    listeners.start()
    assert net.accepting == [9092, 9093]
    listeners.close()
    assert net.bound == []


def test_a_used_address_releases_those_bound_before_it() -> None:
    net = FewPorts(taken=9093)
    with pytest.raises(ListenError, match=r"127\.0\.0\.1:9093: Address already in use"):
        listeners_over(net).bind()
    assert net.bound == []


def test_an_advertised_address_replaces_the_bound_one() -> None:
    listeners = listeners_over(FewPorts(), advertise={"INTERNAL": ("10.0.0.1", 19093)})
    listeners.bind()
    advertised = Endpoint("INTERNAL", "10.0.0.1", 19093)
    assert listeners.advertised() == (advertised,)
    assert listeners.endpoints() == (Endpoint("PLAINTEXT", "127.0.0.1", 9092), advertised)


def test_a_listener_on_every_interface_needs_an_advertised_address_in_a_cluster() -> None:
    addresses = "PLAINTEXT://0.0.0.0:9092"
    store = Path("/shared/metadata.db")
    net = FewPorts()
    with pytest.raises(StartError, match="add --advertise PLAINTEXT=HOST:PORT"):
        listeners_over(net, addresses, metadata=store).bind()
    assert net.bound == []
    advertise = {"PLAINTEXT": ("10.0.0.1", 9092)}
    listeners_over(net, addresses, metadata=store, advertise=advertise).bind()
    listeners_over(net, addresses).bind()
    assert net.bound == [9092, 9092]
