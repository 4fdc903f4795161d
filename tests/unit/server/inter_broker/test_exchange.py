"""What one peer is sent, and which request fails how, decided without a socket."""

from __future__ import annotations

import pytest

from doubles.randomness import SeededRandom
from lakelog.base.errors import ErrorCode
from lakelog.network_client import Identity, InvalidResponseError, NetworkClient, NetworkClientError
from lakelog.protocol.connections import ApiVersion, ApiVersionsResponse
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from lakelog.protocol.registry import APIS
from lakelog.protocol.topics import CreateTopicsRequest
from lakelog.server.inter_broker.exchange import (
    FIRST_S,
    JITTER,
    LONGEST_S,
    BackOff,
    Call,
    ConnectionState,
    Exchange,
    PeerBusyError,
    PeerDisconnectedError,
    PeerError,
    PeerLimits,
    PeerRefusedError,
    PeerTimedOutError,
    PeerUnreachableError,
    PeerUnsupportedError,
)
from lakelog.wire.framing import encode_response
from lakelog.wire.schema import Message

LIMITS = PeerLimits(waiting_max=4, in_flight_max=2, connect_timeout_s=5.0)
AFTER_FIRST_PAUSE_S = FIRST_S * (1 + JITTER)


class Talk:
    """An exchange, its time, and the peer at the other end."""

    def __init__(self, limits: PeerLimits = LIMITS) -> None:
        self.now = 100.0
        self.exchange = Exchange(
            "broker 2 at b:9092",
            lambda: NetworkClient("broker-1", "1", Identity("cluster", 2)),
            BackOff(SeededRandom(7)),
            limits,
        )
        self.results: dict[str, Message | Exception] = {}
        self._answered = 0

    def submit(self, name: str, timeout_s: float = 30.0, message: Message | None = None) -> Call:
        def done(result: Message | Exception) -> None:
            assert name not in self.results, "a request has one result"
            self.results[name] = result

        call = Call(message or metadata_request(name), self.now + timeout_s, done)
        self.exchange.submit(call)
        return call

    def sent(self, portion: int = 1 << 20) -> bytes:
        """Return the bytes sent to a socket that takes `portion` bytes a call."""
        data = b""
        while (head := self.exchange.head()) is not None:
            taken = bytes(head)[:portion]
            self.exchange.on_sent(len(taken))
            data += taken
        return data

    def connect(self) -> None:
        assert self.exchange.wants_connection(self.now)
        self.exchange.on_connecting(self.now)
        self.exchange.on_connected()
        self.sent()

    def greet(self) -> None:
        rows = [ApiVersion(api_key=3, min_version=0, max_version=12)]
        self.receive(18, 5, 0, ApiVersionsResponse(api_keys=rows))
        self._answered = 0

    def open(self) -> None:
        self.connect()
        self.greet()

    def answer(self, name: str) -> None:
        self._answered += 1
        self.receive(3, 12, self._answered, MetadataResponse(cluster_id=name))

    def receive(self, key: int, version: int, correlation_id: int, message: Message) -> None:
        for part in encode_response(APIS[key], version, correlation_id, message):
            self.feed(bytes(part))

    def feed(self, data: bytes) -> None:
        self.exchange.unfilled()[: len(data)] = data
        self.exchange.on_received(len(data))

    def error(self, name: str) -> PeerError:
        result = self.results[name]
        assert isinstance(result, PeerError)
        return result


def metadata_request(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


def test_requests_wait_for_the_greeting_and_leave_in_order() -> None:
    talk = Talk()
    assert not talk.exchange.wants_connection(talk.now), "no call has been made"
    talk.submit("first")
    talk.submit("second")
    talk.connect()
    assert talk.sent() == b"", "no request before the peer has proved its identity"
    talk.greet()
    data = talk.sent(portion=3)
    assert data.index(b"first") < data.index(b"second")
    talk.answer("one")
    talk.answer("two")
    assert [talk.results[name] for name in ("first", "second")] == [
        MetadataResponse(cluster_id="one"),
        MetadataResponse(cluster_id="two"),
    ]


def test_the_greeting_names_the_expected_broker() -> None:
    talk = Talk()
    talk.submit("a")
    talk.exchange.on_connecting(talk.now)
    talk.exchange.on_connected()
    assert b"cluster" in talk.sent()


def test_another_broker_at_the_address_gets_no_request() -> None:
    talk = Talk()
    talk.submit("a")
    talk.connect()
    with pytest.raises(NetworkClientError) as caught:
        talk.receive(18, 5, 0, ApiVersionsResponse(error_code=129))
    talk.exchange.on_lost(talk.now, caught.value)
    error = talk.error("a")
    assert isinstance(error, PeerRefusedError)
    assert "another cluster answers" in error.message
    assert not error.is_outcome_unknown


def test_a_peer_that_cannot_say_which_broker_it_is_gets_no_request() -> None:
    talk = Talk()
    talk.submit("a")
    talk.connect()
    rows = [ApiVersion(api_key=18, min_version=0, max_version=4)]
    with pytest.raises(NetworkClientError) as caught:
        talk.receive(18, 0, 0, ApiVersionsResponse(error_code=35, api_keys=rows))
    talk.exchange.on_lost(talk.now, caught.value)
    assert isinstance(talk.error("a"), PeerRefusedError)


def test_a_failed_attempt_fails_waiting_requests_as_definitely_not_sent() -> None:
    talk = Talk()
    talk.submit("a")
    talk.submit("b")
    talk.exchange.on_connecting(talk.now)
    talk.exchange.on_lost(talk.now, "Connection refused")
    for name in ("a", "b"):
        error = talk.error(name)
        assert isinstance(error, PeerUnreachableError)
        assert error.message == "broker 2 at b:9092: Connection refused"
        assert not error.is_outcome_unknown


def test_a_request_after_a_failure_waits_for_the_pause_to_end() -> None:
    talk = Talk()
    pauses = []
    for number in range(8):
        talk.submit(f"request {number}")
        wake_at = talk.exchange.wake_at()
        assert wake_at is not None
        pauses.append(max(wake_at - talk.now, 0.0))
        assert talk.exchange.wants_connection(talk.now) == (number == 0)
        talk.now = max(wake_at, talk.now)
        assert talk.exchange.wants_connection(talk.now)
        talk.exchange.on_connecting(talk.now)
        talk.exchange.on_lost(talk.now, "Connection refused")
    assert pauses == sorted(pauses[:6]) + pauses[6:], "pauses grow up to the limit"
    assert LONGEST_S * (1 - JITTER) <= pauses[-1] <= LONGEST_S * (1 + JITTER)


def test_an_answered_greeting_ends_the_long_pauses() -> None:
    talk = Talk()
    for _ in range(8):
        talk.submit(f"before {talk.now}")
        talk.now += 2.0
        talk.exchange.on_connecting(talk.now)
        talk.exchange.on_lost(talk.now, "Connection refused")
    talk.now += 2.0
    talk.submit("a")
    talk.open()
    talk.exchange.on_lost(talk.now, "Connection reset by peer")
    assert talk.exchange.wants_connection(talk.now + AFTER_FIRST_PAUSE_S)


def test_a_lost_connection_leaves_only_sent_requests_unknown() -> None:
    talk = Talk()
    talk.submit("sent")
    talk.open()
    talk.sent()
    talk.submit("waiting")
    talk.exchange.on_lost(talk.now, "Connection reset by peer")
    error = talk.error("sent")
    assert isinstance(error, PeerDisconnectedError)
    assert error.is_outcome_unknown
    assert "waiting" not in talk.results, "it is sent over the next connection"
    talk.now += 1.0
    talk.open()
    assert b"waiting" in talk.sent()
    talk.answer("again")
    assert talk.results["waiting"] == MetadataResponse(cluster_id="again")


def test_nothing_of_a_lost_connection_enters_the_next() -> None:
    talk = Talk()
    talk.submit("a")
    talk.open()
    head = talk.exchange.head()
    assert head is not None
    talk.exchange.on_sent(len(head) // 2)
    talk.feed(b"\0\0\0\x50half")
    talk.exchange.on_lost(talk.now, "Connection reset by peer")
    assert isinstance(talk.error("a"), PeerDisconnectedError), "a part of it was sent"
    talk.now += 1.0
    talk.submit("b")
    talk.open()
    talk.sent()
    talk.answer("whole")
    assert talk.results["b"] == MetadataResponse(cluster_id="whole")


def test_a_request_that_times_out_unsent_is_definitely_not_done() -> None:
    talk = Talk()
    talk.submit("short", timeout_s=1.0)
    talk.submit("long", timeout_s=60.0)
    talk.exchange.on_connecting(talk.now)
    assert talk.exchange.wake_at() == talk.now + 1.0
    talk.now += 1.0
    assert talk.exchange.expire(talk.now) is None, "the attempt continues for the others"
    assert isinstance(talk.error("short"), PeerUnreachableError)
    assert "long" not in talk.results


def test_a_request_that_times_out_sent_ends_the_connection() -> None:
    talk = Talk()
    talk.submit("short", timeout_s=1.0)
    talk.submit("long", timeout_s=60.0)
    talk.open()
    talk.sent()
    talk.now += 1.0
    reason = talk.exchange.expire(talk.now)
    assert reason is not None, "a late response would answer the next request"
    assert isinstance(talk.error("short"), PeerTimedOutError)
    assert talk.error("short").is_outcome_unknown
    talk.exchange.on_lost(talk.now, reason)
    assert isinstance(talk.error("long"), PeerDisconnectedError)


def test_a_peer_that_accepts_and_says_nothing_is_unreachable() -> None:
    talk = Talk()
    talk.submit("a", timeout_s=60.0)
    talk.connect()
    assert talk.exchange.wake_at() == talk.now + LIMITS.connect_timeout_s
    talk.now += LIMITS.connect_timeout_s
    reason = talk.exchange.expire(talk.now)
    assert reason is not None
    talk.exchange.on_lost(talk.now, reason)
    assert isinstance(talk.error("a"), PeerUnreachableError)


def test_an_api_that_the_peer_lacks_fails_alone() -> None:
    talk = Talk()
    talk.submit("unknown", message=CreateTopicsRequest())
    talk.submit("known")
    talk.open()
    talk.sent()
    assert isinstance(talk.error("unknown"), PeerUnsupportedError)
    talk.answer("here")
    assert talk.results["known"] == MetadataResponse(cluster_id="here")


def test_no_more_requests_are_in_flight_than_allowed() -> None:
    talk = Talk()
    for name in ("a", "b", "c"):
        talk.submit(name)
    talk.open()
    assert talk.sent().count(b"broker-1") == 2
    talk.answer("a")
    assert talk.sent().count(b"broker-1") == 1


def test_large_requests_are_sent_one_at_a_time() -> None:
    talk = Talk(LIMITS._replace(in_flight_bytes_max=10))
    talk.submit("a")
    talk.submit("b")
    talk.open()
    assert talk.sent().count(b"broker-1") == 1
    talk.answer("a")
    assert talk.sent().count(b"broker-1") == 1


def test_answered_and_lost_requests_leave_the_limit_of_bytes() -> None:
    talk = Talk(LIMITS._replace(in_flight_bytes_max=60))
    talk.submit("lost")
    talk.open()
    talk.sent()
    talk.exchange.on_lost(talk.now, "Connection reset by peer")
    talk.now += 1.0
    for number in range(5):
        talk.submit(f"request {number}")
        if not number:
            talk.open()
        talk.sent()
        talk.answer("done")
    talk.submit("a")
    talk.submit("b")
    assert talk.sent().count(b"broker-1") == 2


def test_a_full_queue_rejects_at_once() -> None:
    talk = Talk()
    for number in range(LIMITS.waiting_max + 1):
        talk.submit(f"request {number}")
    error = talk.error(f"request {LIMITS.waiting_max}")
    assert isinstance(error, PeerBusyError)
    assert not error.is_outcome_unknown
    assert len(talk.results) == 1


def test_a_withdrawn_request_is_not_sent() -> None:
    talk = Talk()
    call = talk.submit("withdrawn")
    talk.submit("other")
    talk.exchange.withdraw(call)
    talk.open()
    data = talk.sent()
    assert b"withdrawn" not in data
    assert b"other" in data
    talk.exchange.withdraw(call)


def test_closing_fails_everything_once() -> None:
    talk = Talk()
    talk.submit("sent")
    talk.open()
    talk.sent()
    talk.submit("waiting")
    talk.exchange.close()
    talk.exchange.close()
    talk.submit("late")
    assert isinstance(talk.error("sent"), PeerDisconnectedError)
    assert isinstance(talk.error("waiting"), PeerUnreachableError)
    assert isinstance(talk.error("late"), PeerUnreachableError)
    assert talk.exchange.state is ConnectionState.CLOSED
    assert not talk.exchange.wants_connection(talk.now + 100)
    assert talk.exchange.wake_at() is None


@pytest.mark.parametrize("raw", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x05\0\0\0\x09\0"])
def test_garbage_instead_of_a_response_ends_the_connection(raw: bytes) -> None:
    talk = Talk()
    talk.submit("a")
    talk.open()
    talk.sent()
    with pytest.raises(InvalidResponseError) as caught:
        talk.feed(raw)
    talk.exchange.on_lost(talk.now, caught.value)
    assert talk.error("a").is_outcome_unknown


def test_pauses_double_up_to_a_limit_and_begin_again_after_a_success() -> None:
    back_off = BackOff(SeededRandom(7))
    for _ in range(2):
        wanted = FIRST_S
        for _ in range(100):
            pause_s = back_off.next_s()
            assert wanted * (1 - JITTER) <= pause_s <= wanted * (1 + JITTER)
            wanted = min(2 * wanted, LONGEST_S)
        back_off.reset()


def test_brokers_that_failed_together_do_not_call_in_step() -> None:
    firsts = {BackOff(SeededRandom(seed)).next_s() for seed in range(20)}
    assert len(firsts) == 20
    assert max(firsts) - min(firsts) > FIRST_S * JITTER


_NOT_SENT = {
    PeerUnreachableError: ErrorCode.BROKER_NOT_AVAILABLE,
    PeerBusyError: ErrorCode.BROKER_NOT_AVAILABLE,
    PeerRefusedError: ErrorCode.INCONSISTENT_CLUSTER_ID,
    PeerUnsupportedError: ErrorCode.UNSUPPORTED_VERSION,
}
_SENT = {
    PeerDisconnectedError: ErrorCode.NETWORK_EXCEPTION,
    PeerTimedOutError: ErrorCode.REQUEST_TIMED_OUT,
}


@pytest.mark.parametrize("kind", PeerError.__subclasses__())
def test_only_a_sent_request_may_have_been_carried_out(kind: type[PeerError]) -> None:
    """A caller repeats the others at once; a wrong answer would run such a request twice."""
    error = kind("to 2 at b:9092")
    assert error.is_outcome_unknown is (kind in _SENT)
    assert error.code is (_NOT_SENT | _SENT)[kind]
    assert error.message == "to 2 at b:9092"
