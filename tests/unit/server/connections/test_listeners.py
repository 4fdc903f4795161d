"""The addresses that a broker binds and announces.

The connections that an acceptor accepts, over fake sockets.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from fake_transport import connect
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.endpoint import Endpoint
from lakelog.base.memory_budget import MemoryBudget
from lakelog.runtime.loop_iterations import PART_S, LoopIterations
from lakelog.server.authentication import BrokersApart, NoQuotas
from lakelog.server.connections.listeners import Acceptor, ConnectionRegistry, Listeners
from lakelog.server.connections.request_budget import FREE
from lakelog.server.options import ListenError, ServeOptions, StartError
from lakelog.server.requests.admission import Admission
from lakelog.server.requests.dispatch import Dispatcher
from lakelog.server.requests.metrics import RequestMetrics
from memory_broker import MemoryBroker
from storage_kit import ManualClock

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


class FakeSocket:
    sends_files = False

    def __init__(self, host: str) -> None:
        self.host = host
        self.closed = False

    def getsockname(self) -> Any:
        return ("127.0.0.1", 9092)

    def getpeername(self) -> Any:
        if self.host == "gone":
            raise OSError(errno.ENOTCONN, "not connected")
        return (self.host, 40_000)

    def close(self) -> None:
        self.closed = True


class ArrivingSockets:
    """Listener, net and tasks in one."""

    address = ("127.0.0.1", 9092)

    def __init__(self, settings: dict[str, str], connections_max: int = 1000) -> None:
        self.config = BrokerConfig(settings)
        self.arriving: deque[FakeSocket | OSError] = deque()
        self.acceptable: Callable[[], None] | None = None
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.soon: list[Callable[[], object]] = []
        self.closed = False
        self.takes_ms = 0
        """Milliseconds that it takes to accept a connection."""
        tasks: Any = self
        self.clock = clock = ManualClock()
        self.dispatcher = Dispatcher(
            {},
            lambda context, request: None,
            ConnectionRegistry(clock, LoopIterations(clock, tasks), MemoryBudget(0)),
            tasks,
            RequestMetrics(clock),
            Admission(BrokersApart(()), NoQuotas()),
            lambda file, error: None,
        )
        arriving_sockets: Any = self
        self.acceptor = Acceptor(
            "PLAINTEXT",
            arriving_sockets,
            self.dispatcher,
            self.dispatcher.connections,
            arriving_sockets,
            arriving_sockets,
            arriving_sockets,
            clock,
            lambda: self.config,
            connections_max,
        )
        self.acceptor.start()

    def connect(self, *hosts: str) -> list[FakeSocket]:
        """Connect from all hosts at once; the loop then calls the acceptor."""
        sockets = [FakeSocket(host) for host in hosts]
        self.arriving.extend(sockets)
        while self.arriving and self.acceptable is not None:
            self.acceptable()
        return sockets

    def accept(self) -> FakeSocket:
        if not self.arriving:
            raise BlockingIOError
        self.clock.now_ms += self.takes_ms
        arrived = self.arriving.popleft()
        if isinstance(arrived, OSError):
            raise arrived
        return arrived

    def close(self) -> None:
        self.closed = True

    def on_acceptable(self, listener: Any, callback: Callable[[], None] | None) -> None:
        self.acceptable = callback

    def on_readable(self, sock: Any, callback: Callable[[], None] | None) -> None:
        pass

    on_writable = on_readable

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        self.timers.append((delay_s, lambda: callback(*args)))

    def run_timers(self) -> None:
        timers, self.timers = self.timers, []
        for _, callback in timers:
            callback()


def refused(sockets: list[FakeSocket]) -> list[int]:
    return [number for number, sock in enumerate(sockets) if sock.closed]


@pytest.mark.parametrize("others", [0, FREE])
def test_a_crowd_that_connects_at_once_is_accepted_in_several_loop_iterations(others: int) -> None:
    """`others` is what requests have taken of the loop iteration."""
    arriving_sockets, iterations = ArrivingSockets({}), 0
    arriving_sockets.takes_ms = 1
    most = FREE - others + 2 + PART_S * 1000
    arriving_sockets.arriving.extend(FakeSocket("10.0.0.1") for _ in range(200))
    while arriving_sockets.arriving:
        assert arriving_sockets.acceptable is not None
        arriving_sockets.dispatcher.connections.iterations.left -= others
        accepted = len(arriving_sockets.dispatcher.connections)
        arriving_sockets.acceptable()
        accepted = len(arriving_sockets.dispatcher.connections) - accepted
        assert 1 <= accepted <= most
        iterations += 1
        for callback in [arriving_sockets.soon.pop() for _ in list(arriving_sockets.soon)]:
            callback()
    assert iterations >= 200 / most


def test_all_connections_are_accepted_by_default() -> None:
    arriving_sockets = ArrivingSockets({})
    assert refused(arriving_sockets.connect(*["10.0.0.1"] * 200)) == []
    assert len(arriving_sockets.dispatcher.connections) == 200


def test_no_more_than_max_connections(caplog: pytest.LogCaptureFixture) -> None:
    arriving_sockets = ArrivingSockets({"max.connections": "3"})
    sockets = arriving_sockets.connect(*(f"10.0.0.{number}" for number in range(5)))
    assert refused(sockets) == [3, 4]
    arriving_sockets.run_timers()
    assert [record.message for record in caplog.records] == [
        "PLAINTEXT: 2 connections refused, max.connections=3"
    ]
    next(iter(arriving_sockets.dispatcher.connections)).close()
    assert refused(arriving_sockets.connect("10.0.0.6", "10.0.0.7")) == [1]


def test_no_more_than_max_connections_of_one_address(caplog: pytest.LogCaptureFixture) -> None:
    arriving_sockets = ArrivingSockets({"max.connections.per.ip": "2"})
    first = arriving_sockets.connect("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.1")
    assert refused(first) == [2, 4]
    arriving_sockets.run_timers()
    assert "2 connections refused, max.connections.per.ip=2 of 10.0.0.1" in caplog.text
    for connection in list(arriving_sockets.dispatcher.connections):
        if connection.session.peer[0] == "10.0.0.1":
            connection.close()
    assert refused(arriving_sockets.connect("10.0.0.1", "10.0.0.1", "10.0.0.1")) == [2]


def test_the_limits_in_force_count() -> None:
    arriving_sockets = ArrivingSockets({})
    arriving_sockets.connect("10.0.0.1", "10.0.0.1")
    arriving_sockets.config = BrokerConfig({}).with_dynamic({"max.connections.per.ip": "2"}, {})
    assert refused(arriving_sockets.connect("10.0.0.1", "10.0.0.2")) == [0]


def test_a_client_that_is_gone_already_is_not_counted() -> None:
    arriving_sockets = ArrivingSockets({})
    assert refused(arriving_sockets.connect("gone", "10.0.0.1")) == [0]
    assert len(arriving_sockets.dispatcher.connections) == 1


def test_without_descriptors_it_pauses_and_continues() -> None:
    arriving_sockets = ArrivingSockets({})
    arriving_sockets.arriving.append(OSError(errno.EMFILE, "too many open files"))
    arriving_sockets.connect("10.0.0.1")
    assert arriving_sockets.acceptable is None
    assert len(arriving_sockets.dispatcher.connections) == 0
    arriving_sockets.run_timers()
    assert refused(arriving_sockets.connect("10.0.0.2")) == []
    assert len(arriving_sockets.dispatcher.connections) == 2


def test_a_closed_acceptor_accepts_no_connection() -> None:
    arriving_sockets = ArrivingSockets({})
    arriving_sockets.arriving.append(OSError(errno.EMFILE, "too many open files"))
    arriving_sockets.connect()
    arriving_sockets.acceptor.close()
    arriving_sockets.run_timers()
    assert arriving_sockets.closed
    assert arriving_sockets.acceptable is None


def test_new_connections_are_delayed_beyond_their_rate() -> None:
    arriving_sockets = ArrivingSockets({"max.connection.creation.rate": "10"})
    sockets = arriving_sockets.connect(*["10.0.0.1"] * 25)
    assert len(arriving_sockets.dispatcher.connections) == 10
    assert arriving_sockets.acceptable is None
    ((delay_s, _),) = arriving_sockets.timers
    assert delay_s == pytest.approx(0.1)
    arriving_sockets.clock.now_ms += 101
    arriving_sockets.run_timers()
    assert len(arriving_sockets.dispatcher.connections) == 10, (
        "the listener is asked again, nothing more"
    )
    arriving_sockets.connect()
    assert len(arriving_sockets.dispatcher.connections) == 11
    arriving_sockets.clock.now_ms += 60_000
    arriving_sockets.run_timers()
    arriving_sockets.connect()
    assert len(arriving_sockets.dispatcher.connections) == 21, "a pause earns a second's worth"
    assert refused(sockets) == []


def test_addresses_are_forgotten_with_their_last_connection() -> None:
    arriving_sockets = ArrivingSockets({})
    arriving_sockets.connect("10.0.0.1", "10.0.0.1", "10.0.0.2")
    assert arriving_sockets.dispatcher.connections.count_from("10.0.0.1") == 2
    for connection in list(arriving_sockets.dispatcher.connections):
        connection.close()
        connection.close()
    assert arriving_sockets.dispatcher.connections.count_from("10.0.0.1") == 0
    assert not arriving_sockets.dispatcher.connections._of_host


def test_the_limit_of_descriptors_holds_below_the_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    arriving_sockets = ArrivingSockets({"max.connections": "5"}, connections_max=3)
    sockets = arriving_sockets.connect(*["10.0.0.1"] * 5)
    assert [sock.closed for sock in sockets] == [False] * 3 + [True] * 2
    assert arriving_sockets.dispatcher.connections.refused == 2
    (_, report), *_ = arriving_sockets.timers
    report()
    assert "2 connections refused, the limit of open files (ulimit -n) leaves 3" in caplog.text


def test_connections_are_counted_by_host_until_they_are_closed() -> None:
    tasks: Any = None
    registry = ConnectionRegistry(
        ManualClock(), LoopIterations(ManualClock(), tasks), MemoryBudget(0)
    )
    first, second = (connect()[2] for _ in range(2))
    for connection in (first, second):
        registry.add(connection)
    assert (len(registry), list(registry)) == (2, [first, second])
    assert (registry.count_from("127.0.0.1"), registry.count_from("10.0.0.1")) == (2, 0)
    for _ in range(2):
        registry.discard(first)
    assert (list(registry), registry.count_from("127.0.0.1")) == ([second], 1)


def test_a_connection_that_was_never_added_may_be_discarded() -> None:
    tasks: Any = None
    registry = ConnectionRegistry(
        ManualClock(), LoopIterations(ManualClock(), tasks), MemoryBudget(0)
    )
    registry.discard(connect()[2])
    assert len(registry) == 0
