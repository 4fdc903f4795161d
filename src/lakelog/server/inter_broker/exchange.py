"""The requests to one peer, without I/O: what to send, when to connect, which request failed how.

    DISCONNECTED --request, pause over--> CONNECTING --socket--> GREETING --ApiVersions--> OPEN
         ^                                     |                    |                       |
         +--- failed: a pause, waiting requests fail ---------------+--- lost: a pause -----+

Requests wait in a queue until the connection is open, then leave in order. A request that was not
handed to the socket is definitely not carried out; of any other without a response the outcome is
unknown. A lost connection fails only the sent requests: queued requests wait for the next
connection, until their own time limits or a failed attempt. A caller that repeats failed requests
therefore waits for the pause between attempts, and needs no pause of its own. Pauses double up to a
limit, with jitter; both are the defaults of Kafka's clients (`reconnect.backoff.ms`,
`reconnect.backoff.max.ms`).

A peer states in its greeting that it is the expected broker (KIP-1242), and then both ends prove
that they are the processes which are registered (`server/authentication.py`): no request reaches
another process that has got the address.

The owner reports events and asks: `wants_connection`, `head` for the bytes to send next,
`wake_at` for the time of the next call of `expire`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.network_client import (
    MAX_RESPONSE_BYTES,
    NegotiationError,
    NetworkClient,
    NetworkClientError,
    NoCommonVersionError,
    ResponseFrames,
)
from lakelog.runtime.api import Random
from lakelog.server.authentication import Proof
from lakelog.wire.primitives import WireError
from lakelog.wire.schema import Buffer, Message


class PeerError(KafkaError):
    """A request to a peer has no response."""

    meaning = ErrorCode.BROKER_NOT_AVAILABLE
    is_outcome_unknown = False
    """False: the peer has definitely not carried out the request. True: it may have."""

    def __init__(self, message: str) -> None:
        super().__init__(self.meaning, message)


class PeerUnreachableError(PeerError):
    """Not sent: there is no connection, or it was not ready in time."""


class PeerRefusedError(PeerError):
    """Not sent: the process at the peer's address is not the expected broker."""

    meaning = ErrorCode.INCONSISTENT_CLUSTER_ID


class PeerBusyError(PeerError):
    """Not sent: too many requests to this peer wait already."""


class PeerUnsupportedError(PeerError):
    """Not sent: the peer and this broker have no common version of the API."""

    meaning = ErrorCode.UNSUPPORTED_VERSION


class PeerDisconnectedError(PeerError):
    """The connection was lost before the response came."""

    meaning = ErrorCode.NETWORK_EXCEPTION
    is_outcome_unknown = True


class PeerTimedOutError(PeerError):
    """The response did not come in time. The connection is closed: it may still come."""

    meaning = ErrorCode.REQUEST_TIMED_OUT
    is_outcome_unknown = True


FIRST_S = 0.05
LONGEST_S = 1.0
JITTER = 0.2
"""The share by which a pause is longer or shorter at random: brokers shall not call in step."""
_DOUBLINGS_MAX = 10
_GRAIN = 1 << 20


class BackOff:
    """The pauses of one peer."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0

    def next_s(self) -> float:
        """Return the seconds to wait after one more failure in a row."""
        factor = 1 << min(self._failures, _DOUBLINGS_MAX)
        self._failures += 1
        jitter = 2 * self._random.below(_GRAIN) / _GRAIN - 1
        return min(FIRST_S * factor, LONGEST_S) * (1 + JITTER * jitter)

    def reset(self) -> None:
        """Begin with the first pause again, after a success."""
        self._failures = 0


class PeerLimits(NamedTuple):
    """Limits of one peer; times are in seconds."""

    waiting_max: int = 256
    """Requests that wait to be sent."""
    in_flight_max: int = 32
    """Sent requests without a response; the server side handles fewer than 128 at a time."""
    in_flight_bytes_max: int = 8 << 20
    """Bytes of these; a single larger request is sent alone."""
    connect_timeout_s: float = 5.0
    """Limit of an attempt, from its begin to the answered greeting."""
    response_bytes_max: int = MAX_RESPONSE_BYTES


class ConnectionState(Enum):
    """The state of the connection to one peer."""

    DISCONNECTED = auto()
    CONNECTING = auto()
    GREETING = auto()
    OPEN = auto()
    CLOSED = auto()


DEFAULT_LIMITS = PeerLimits()


@dataclass(slots=True, eq=False)
class Call:
    """One request; `done` gets its response or error, exactly once.

    `deadline` is a reading of the monotonic clock, in seconds. `newest` limits the version.
    """

    message: Message
    deadline: float
    done: Callable[[Message | PeerError | WireError], None]
    newest: int | None = None
    size: int = 0
    """Bytes of the frame, once it is encoded."""


class Exchange:
    """The requests to one peer and the state of the connection."""

    def __init__(
        self,
        name: str,
        start_network_client: Callable[[], NetworkClient],
        back_off: BackOff,
        limits: PeerLimits = DEFAULT_LIMITS,
        start_proof: Callable[[], Proof | None] = lambda: None,
    ) -> None:
        """
        name: the peer and its address, for messages.
        start_proof: returns the proof that follows the greeting of a connection, if there is one.
        """
        self.limits = limits
        self.state = ConnectionState.DISCONNECTED
        self._name = name
        self._start_network_client = start_network_client
        self._network_client = start_network_client()
        self._start_proof = start_proof
        self._proof: Proof | None = None
        self._frames = ResponseFrames()
        self._back_off = back_off
        self._not_before = 0.0
        """The next attempt to connect begins no earlier."""
        self._attempt_ends = 0.0
        self._waiting: deque[Call] = deque()
        self._in_flight: deque[Call] = deque()
        self._in_flight_bytes = 0
        self._unsent: deque[Buffer] = deque()

    # Requests

    def submit(self, call: Call) -> None:
        """Queue a request; it fails at once if the queue is full or the peer is closed."""
        if self.state is ConnectionState.CLOSED:
            call.done(PeerUnreachableError(f"{self._name}: closed"))
        elif len(self._waiting) >= self.limits.waiting_max:
            call.done(PeerBusyError(f"{self._name}: {len(self._waiting)} requests wait"))
        else:
            self._waiting.append(call)

    def withdraw(self, call: Call) -> None:
        """Do not send a request whose caller no longer waits for it, unless it was sent."""
        if call in self._waiting:
            self._waiting.remove(call)

    # The connection

    def wants_connection(self, now: float) -> bool:
        """Return whether an attempt to connect is due."""
        is_due = self.state is ConnectionState.DISCONNECTED and now >= self._not_before
        return is_due and bool(self._waiting)

    def on_connecting(self, now: float) -> None:
        """Note the begin of an attempt."""
        assert self.state is ConnectionState.DISCONNECTED
        self.state = ConnectionState.CONNECTING
        self._attempt_ends = now + self.limits.connect_timeout_s

    def on_connected(self) -> None:
        """Greet the peer over a new connection."""
        assert self.state is ConnectionState.CONNECTING
        assert not self._in_flight and not self._unsent
        self.state = ConnectionState.GREETING
        self._network_client, self._proof = self._start_network_client(), None
        self._frames = ResponseFrames(self.limits.response_bytes_max)
        self._unsent.extend(self._network_client.hello())

    def on_lost(self, now: float, reason: str | NetworkClientError) -> None:
        """Note that the attempt failed or the connection ended."""
        assert self.state not in (ConnectionState.DISCONNECTED, ConnectionState.CLOSED)
        was_open = self.state is ConnectionState.OPEN
        self.state = ConnectionState.DISCONNECTED
        self._not_before = now + self._back_off.next_s()
        self._unsent.clear()
        if was_open:
            self._fail(self._in_flight, PeerDisconnectedError(f"{self._name}: {reason}"))
            self._in_flight_bytes = 0
        else:
            self._fail(self._waiting, self._failed_attempt(reason))

    def close(self) -> None:
        """Fail all requests; nothing is sent any more."""
        self.state = ConnectionState.CLOSED
        self._unsent.clear()
        self._fail(self._in_flight, PeerDisconnectedError(f"{self._name}: closed"))
        self._fail(self._waiting, PeerUnreachableError(f"{self._name}: closed"))

    def _failed_attempt(self, reason: str | NetworkClientError) -> PeerError:
        code = reason.code if isinstance(reason, NegotiationError) else None
        if code is ErrorCode.REBOOTSTRAP_REQUIRED:
            text = "another broker or another cluster answers at this address"
            return PeerRefusedError(f"{self._name}: {text}")
        if code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            text = "it does not know this process, or is another process by now"
            return PeerUnreachableError(f"{self._name}: {text}")
        is_refused = isinstance(reason, NegotiationError | NoCommonVersionError)
        kind = PeerRefusedError if is_refused else PeerUnreachableError
        return kind(f"{self._name}: {reason}")

    def _fail(self, calls: deque[Call], error: PeerError) -> None:
        while calls:
            calls.popleft().done(error)

    # Sending

    def head(self) -> Buffer | None:
        """Return the bytes to send next, or None. Encodes the next request when it is its turn."""
        while not self._unsent:
            is_open = self.state is ConnectionState.OPEN
            if not (is_open and self._waiting and self._has_capacity()):
                return None
            self._encode(self._waiting.popleft())
        return self._unsent[0]

    def on_sent(self, count: int) -> None:
        """Note that the socket took `count` bytes of `head`."""
        head = self._unsent.popleft()
        assert 0 < count <= len(head)
        if count < len(head):
            self._unsent.appendleft(memoryview(head)[count:])

    def _has_capacity(self) -> bool:
        in_flight, limits = len(self._in_flight), self.limits
        return not in_flight or (
            in_flight < limits.in_flight_max and self._in_flight_bytes < limits.in_flight_bytes_max
        )

    def _encode(self, call: Call) -> None:
        try:
            _, parts = self._network_client.ask(call.message, call.newest)
        except NoCommonVersionError as error:
            call.done(PeerUnsupportedError(f"{self._name}: {error.message}"))
            return
        except WireError as error:
            call.done(error)
            return
        call.size = sum(map(len, parts))
        self._unsent.extend(parts)
        self._in_flight.append(call)
        self._in_flight_bytes += call.size

    # Receiving

    def unfilled(self) -> memoryview:
        """Return the memory for the next received bytes."""
        return self._frames.unfilled()

    def on_received(self, count: int) -> None:
        """Process the first `count` bytes of `unfilled()`.

        Raises `NetworkClientError`; the owner then closes the connection and calls `on_lost`.
        """
        self._frames.received(count)
        while (frame := self._frames.next()) is not None:
            if self.state is ConnectionState.GREETING:
                self._on_greeting(frame)
            else:
                _, message = self._network_client.answer(frame)
                call = self._in_flight.popleft()
                self._in_flight_bytes -= call.size
                call.done(message)

    def _on_greeting(self, frame: Buffer) -> None:
        if self._proof is None:
            if self._network_client.welcome(frame) is not None:
                text = "the broker is too old to say which broker it is (KIP-1242)"
                raise NoCommonVersionError(text)
            self._proof = self._start_proof()
            request = None if self._proof is None else next(self._proof)
        else:
            request = _next_request(self._proof, self._network_client.answer(frame)[1])
        if request is not None:
            self._unsent.extend(self._network_client.ask(request)[1])
            return
        self.state = ConnectionState.OPEN
        self._back_off.reset()

    # Time

    def wake_at(self) -> float | None:
        """Return when to call `expire` and `wants_connection` next, or None."""
        times = [call.deadline for call in (*self._waiting, *self._in_flight)]
        if self.state is ConnectionState.DISCONNECTED and self._waiting:
            times.append(self._not_before)
        if self.state is ConnectionState.GREETING:
            times.append(self._attempt_ends)
        return min(times, default=None)

    def expire(self, now: float) -> str | None:
        """Fail the requests whose time is over.

        Returns why the connection must be closed, or None. A response that is late would otherwise
        be taken for that of the next request.
        """
        for call in [call for call in self._waiting if call.deadline <= now]:
            self._waiting.remove(call)
            call.done(PeerUnreachableError(f"{self._name}: not sent in time"))
        if self.state is ConnectionState.GREETING and now >= self._attempt_ends:
            return f"no greeting within {self.limits.connect_timeout_s:g} s"
        late = [call for call in self._in_flight if call.deadline <= now]
        for call in late:
            self._in_flight.remove(call)
            call.done(PeerTimedOutError(f"{self._name}: no response in time"))
        return "a request timed out" if late else None


def _next_request(proof: Proof, response: Message) -> Message | None:
    """Return the next request of a proof, or None after the last one. Raises
    `NetworkClientError`."""
    try:
        return proof.send(response)
    except StopIteration:
        return None
