"""The other brokers of the cluster, each with one outgoing connection.

A `Peer` has the socket and the timers of an `Exchange`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from lakelog import __version__
from lakelog.base.endpoint import Endpoint
from lakelog.metadata.image import BrokerImage, MetadataImage
from lakelog.network_client import Identity, NetworkClient, NetworkClientError
from lakelog.runtime.api import Clock, Net, Random, Socket, Tasks, Timer
from lakelog.server.authentication import NONCE_BYTES, Ends, Process, prove
from lakelog.server.inter_broker.exchange import (
    DEFAULT_LIMITS,
    BackOff,
    Call,
    ConnectionState,
    Exchange,
    PeerLimits,
)
from lakelog.wire.schema import Message


class PeerSeams(NamedTuple):
    """What every peer of the calling broker, `node_id`, is made of."""

    node_id: int
    net: Net
    tasks: Tasks
    clock: Clock
    random: Random

    @property
    def client_id(self) -> str:
        """The name of the calling broker in its requests."""
        return f"broker-{self.node_id}"


class Peer:
    """A broker that this one calls. It is connected by the first request, and again when lost."""

    def __init__(
        self,
        identity: Identity,
        endpoint: Endpoint,
        seams: PeerSeams,
        limits: PeerLimits = DEFAULT_LIMITS,
        ends: Ends | None = None,
    ) -> None:
        """
        identity: the broker that has to answer at `endpoint`.
        ends: the processes that prove their identity to each other; None for a greeting alone.
        """
        self.node_id = identity.node_id
        self.ends = ends
        self.endpoint = endpoint
        self._net, self._tasks, self._clock = seams.net, seams.tasks, seams.clock
        self._exchange = Exchange(
            f"broker {identity.node_id} at {endpoint.address}",
            lambda: NetworkClient(seams.client_id, __version__, identity),
            BackOff(seams.random),
            limits,
            lambda: None if ends is None else prove(ends, seams.random.bytes(NONCE_BYTES)),
        )
        self._attempt: Any = None
        """The task that connects."""
        self.on_lost: Callable[[], object] = tuple
        """Called after an established connection has ended."""
        self.is_absent = False
        """Whether the other host refused the last attempt: no process has the port."""
        self._sock: Socket | None = None
        self._is_blocked = False
        self._timer: Timer | None = None
        self._timer_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the peer has answered the greeting of the current connection."""
        return self._exchange.state is ConnectionState.OPEN

    async def request(
        self, message: Message, *, timeout_s: float, newest: int | None = None
    ) -> Message:
        """Return the response to `message`, sent in a version of at most `newest`.

        Raises `PeerError`, whose type says whether the peer may have carried out the request, and
        `WireError` for values that the version cannot carry.
        """
        future = self._tasks.future()
        deadline = self._clock.monotonic() + timeout_s
        call = Call(message, deadline, partial(_complete, future), newest)
        self._exchange.submit(call)
        self._advance()
        try:
            response: Message = await future
        finally:
            if future.cancelled():
                self._exchange.withdraw(call)
        return response

    def close(self) -> None:
        """Fail all requests and close the connection. May be called repeatedly."""
        self._exchange.close()
        self._stop_timer()
        if self._attempt is not None:
            self._attempt.cancel()
        self._disconnect()

    # Driving the exchange

    def _advance(self) -> None:
        """Perform the actions that the exchange wants now."""
        exchange, now = self._exchange, self._clock.monotonic()
        if exchange.wants_connection(now):
            exchange.on_connecting(now)
            name = f"peer {self.node_id}"
            self._attempt = self._tasks.spawn(self._connect(), name=name)
        if self._sock is not None:
            self._send(self._sock)
        self._set_timer()

    async def _connect(self) -> None:
        host, port, limit = self.endpoint.host, self.endpoint.port, self._exchange.limits
        try:
            sock = await self._net.connect(host, port, timeout_s=limit.connect_timeout_s)
        except (OSError, UnicodeError) as error:  # a host name that DNS cannot have
            self.is_absent = isinstance(error, ConnectionRefusedError)
            self._exchange.on_lost(self._clock.monotonic(), _reason(error))
        else:
            self.is_absent = False
            self._sock = sock
            self._exchange.on_connected()
            self._net.on_readable(sock, self._on_readable)
        self._advance()

    def _on_readable(self) -> None:
        assert self._sock is not None
        try:
            count = self._sock.recv_into(self._exchange.unfilled())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(_reason(error))
            return
        if not count:
            self._lose("the broker closed the connection")
            return
        try:
            self._exchange.on_received(count)
        except NetworkClientError as error:
            self._lose(error)
        else:
            self._advance()

    def _send(self, sock: Socket) -> None:
        is_blocked = False
        try:
            while (head := self._exchange.head()) is not None:
                self._exchange.on_sent(sock.send(head))
        except (BlockingIOError, InterruptedError):
            is_blocked = True
        except OSError as error:
            self._lose(_reason(error))
            return
        if is_blocked != self._is_blocked:
            self._is_blocked = is_blocked
            self._net.on_writable(sock, self._advance if is_blocked else None)

    def _lose(self, reason: str | NetworkClientError) -> None:
        self._disconnect()
        was_open = self.is_open
        self._exchange.on_lost(self._clock.monotonic(), reason)
        self._set_timer()
        if was_open:
            self.on_lost()

    def _disconnect(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._net.on_readable(sock, None)
            self._net.on_writable(sock, None)
            self._is_blocked = False
            sock.close()

    # Time

    def _set_timer(self) -> None:
        """Keep a timer that is not too late: most requests end long before their limits."""
        wake_at = self._exchange.wake_at()
        if wake_at is None:
            self._stop_timer()
        elif self._timer is None or wake_at < self._timer_at:
            self._stop_timer()
            self._timer_at = wake_at
            delay_s = max(wake_at - self._clock.monotonic(), 0.0)
            self._timer = self._tasks.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        reason = self._exchange.expire(self._clock.monotonic())
        if reason is not None:
            self._lose(reason)
        self._advance()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _complete(future: Any, result: Message | Exception) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def _reason(error: OSError | UnicodeError) -> str:
    """Return the description of an error; numbers of errors differ between systems."""
    if isinstance(error, TimeoutError):
        return "no connection in time"
    return getattr(error, "strerror", None) or str(error)


class Peers:
    """A peer for each registered broker with an address, except this one."""

    def __init__(
        self,
        own: Process,
        listener_name: str,
        seams: PeerSeams,
        limits: PeerLimits = DEFAULT_LIMITS,
    ) -> None:
        """
        own: this process.
        listener_name: the listener of other brokers that is called if they have it.
        """
        self._own = own
        self._listener_name = listener_name
        self._seams = seams
        self._limits = limits
        self._peers: dict[int, tuple[BrokerImage, Peer]] = {}

    def __iter__(self) -> Iterator[Peer]:
        return (peer for _, peer in self._peers.values())

    def get(self, node_id: int) -> Peer | None:
        """Return the peer of this node id, or None if no such broker can be called."""
        entry = self._peers.get(node_id)
        return None if entry is None else entry[1]

    def follow(self, image: MetadataImage) -> None:
        """Apply the registered brokers of an image.

        A broker that has started again gets a new peer: requests to its former process fail, and no
        pause delays the first attempt.
        """
        for node_id, (broker, _) in list(self._peers.items()):
            if _process(image, node_id) != broker:
                self._peers.pop(node_id)[1].close()
        assert image.cluster_id is not None or not image.brokers, "brokers join an existing cluster"
        for node_id, broker in sorted(image.brokers.items()):
            endpoint = broker.endpoint(self._listener_name)
            if node_id in self._peers or node_id == self._own.node_id or endpoint is None:
                continue
            identity = Identity(image.cluster_id or "", node_id)
            called = Process(node_id, broker.incarnation_id)
            ends = Ends(identity.cluster_id, self._own, called)
            self._peers[node_id] = (
                broker._replace(is_fenced=False),
                Peer(identity, endpoint, self._seams, self._limits, ends),
            )

    def close(self) -> None:
        """Close all connections and fail all requests."""
        for _, peer in self._peers.values():
            peer.close()
        self._peers.clear()


def _process(image: MetadataImage, node_id: int) -> BrokerImage | None:
    """Return the registration of a broker; being fenced does not change its connections."""
    broker = image.brokers.get(node_id)
    return None if broker is None else broker._replace(is_fenced=False)
