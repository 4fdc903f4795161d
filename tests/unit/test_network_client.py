from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.base.errors import ErrorCode
from lakelog.network_client import (
    Identity,
    InvalidResponseError,
    NegotiationError,
    NetworkClient,
    NetworkClientError,
    NoCommonVersionError,
    ResponseFrames,
)
from lakelog.protocol.connections import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from lakelog.protocol.metadata import MetadataRequest, MetadataResponse
from lakelog.protocol.produce import ProduceRequest
from lakelog.protocol.registry import APIS
from lakelog.wire.codec import decode
from lakelog.wire.framing import decode_request_header, encode_response
from lakelog.wire.schema import Buffer

METADATA = APIS[3]


def frame(key: int, version: int, correlation_id: int, message: object) -> bytes:
    parts = encode_response(APIS[key], version, correlation_id, message)  # type: ignore[arg-type]
    return b"".join(parts)[4:]


def hello(versions: dict[int, tuple[int, int]] | None = None) -> NetworkClient:
    network_client = NetworkClient("test", "1")
    network_client.hello()
    ranges = {3: (0, 12), 0: (3, 11), **(versions or {})}
    rows = [ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in ranges.items()]
    assert network_client.welcome(frame(18, 3, 0, ApiVersionsResponse(api_keys=rows))) is None
    return network_client


def test_the_first_request_names_the_software() -> None:
    raw = b"".join(NetworkClient("me", "7.5").hello())
    size, key, version, correlation_id = struct.unpack_from(">ihhi", raw)
    assert (size, key, version, correlation_id) == (len(raw) - 4, 18, 3, 0)
    assert b"lakelog" in raw
    assert b"7.5" in raw


def test_versions_are_the_newest_that_both_know() -> None:
    network_client = hello()
    assert network_client.version(METADATA) == 12
    assert network_client.version(METADATA, newest=9) == 9
    assert hello({3: (0, 99)}).version(METADATA) == METADATA.max_version


@pytest.mark.parametrize("theirs", [(50, 60), (0, -1)])
def test_no_common_version_is_an_error(theirs: tuple[int, int]) -> None:
    with pytest.raises(NoCommonVersionError, match="Metadata"):
        hello({3: theirs}).version(METADATA)


def test_an_api_that_the_broker_lacks_is_an_error() -> None:
    with pytest.raises(NoCommonVersionError):
        hello().version(APIS[22])


def test_an_old_broker_is_greeted_again_in_its_version() -> None:
    network_client = NetworkClient("test", "1")
    network_client.hello()
    rows = [ApiVersion(api_key=18, min_version=0, max_version=2)]
    refusal = ApiVersionsResponse(error_code=35, api_keys=rows)
    assert network_client.welcome(frame(18, 0, 0, refusal)) == 2
    network_client.hello(2)
    rows.append(ApiVersion(api_key=3, min_version=1, max_version=4))
    assert network_client.welcome(frame(18, 2, 1, ApiVersionsResponse(api_keys=rows))) is None
    assert network_client.version(METADATA) == 4


def test_another_error_of_the_greeting_is_raised() -> None:
    network_client = NetworkClient("test", "1")
    network_client.hello()
    with pytest.raises(NegotiationError) as caught:
        network_client.welcome(frame(18, 3, 0, ApiVersionsResponse(error_code=58)))
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_the_greeting_names_the_broker_that_it_is_for() -> None:
    network_client = NetworkClient("test", "1", Identity("cluster-a", 7))
    raw = b"".join(network_client.hello())
    _, _, start = decode_request_header(raw, 4, len(raw), flexible=True)
    request = decode(ApiVersionsRequest, raw, 5, start, len(raw))
    assert (request.cluster_id, request.node_id) == ("cluster-a", 7)
    with pytest.raises(NegotiationError) as caught:
        network_client.welcome(frame(18, 5, 0, ApiVersionsResponse(error_code=129)))
    assert caught.value.code is ErrorCode.REBOOTSTRAP_REQUIRED


def test_answers_come_in_the_order_of_the_questions() -> None:
    network_client = hello()
    first, _ = network_client.ask(MetadataRequest(topics=[]))
    second, _ = network_client.ask(MetadataRequest(topics=[]), newest=4)
    assert network_client.in_flight == 2
    found, message = network_client.answer(frame(3, 12, first, MetadataResponse(cluster_id="c")))
    assert (found, message) == (first, MetadataResponse(cluster_id="c"))
    assert network_client.answer(frame(3, 4, second, MetadataResponse()))[0] == second
    assert network_client.in_flight == 0


def test_a_response_to_another_request_is_rejected() -> None:
    network_client = hello()
    correlation_id, _ = network_client.ask(MetadataRequest(topics=[]))
    with pytest.raises(InvalidResponseError, match=r"response \d+ instead of"):
        network_client.answer(frame(3, 12, correlation_id + 1, MetadataResponse()))


def test_a_response_without_a_request_is_rejected() -> None:
    with pytest.raises(InvalidResponseError, match="a response without a request"):
        hello().answer(frame(3, 12, 0, MetadataResponse()))


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\0\0\1" + b"\xff" * 20, b"HTTP/1.1 400"])
def test_garbage_is_refused(raw: bytes) -> None:
    network_client = hello()
    network_client.ask(MetadataRequest(topics=[]))
    with pytest.raises(InvalidResponseError):
        network_client.answer(raw)


def test_a_request_without_an_answer_is_not_awaited() -> None:
    network_client = hello()
    network_client.ask(ProduceRequest(acks=0), answered=False)
    assert network_client.in_flight == 0


def test_correlation_ids_wrap() -> None:
    network_client = hello()
    network_client._next_id = 2**31 - 1
    assert network_client.ask(MetadataRequest(topics=[]))[0] == 2**31 - 1
    assert network_client.ask(MetadataRequest(topics=[]))[0] == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidResponseError("Fetch v4: 1 byte left over"), ErrorCode.INVALID_REQUEST),
        (NoCommonVersionError("Fetch: supports 4 to 4"), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_the_same_request_would_fail_again(error: NetworkClientError, code: ErrorCode) -> None:
    """Clients retry by the code: a peer that breaks the protocol once would do it again."""
    assert error.code is code
    assert not error.code.retriable
    assert "Fetch" in str(error)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed(frames: ResponseFrames, data: Buffer) -> None:
    unfilled = frames.unfilled()
    assert len(unfilled) >= len(data)
    unfilled[: len(data)] = data
    frames.received(len(data))


def test_responses_are_found_in_any_portions() -> None:
    stream = framed(b"first") + framed(b"the second") + framed(b"last")
    for size in range(1, len(stream) + 1):
        frames, found = ResponseFrames(), []
        for begin in range(0, len(stream), size):
            feed(frames, stream[begin : begin + size])
            while (frame := frames.next()) is not None:
                found.append(frame)
        assert found == [b"first", b"the second", b"last"]


@settings(max_examples=25)
@given(
    sizes=st.lists(
        st.sampled_from([4, 100, 8191, 8192, 8193, 65_532, 65_536, 300_000]), max_size=6
    ),
    portions=st.lists(st.integers(1, 200_000), min_size=1),
)
def test_responses_stay_as_they_were_received(sizes: list[int], portions: list[int]) -> None:
    """The memory of a returned response is not received into again."""
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = memoryview(b"".join(map(framed, bodies)))
    frames, found = ResponseFrames(), []
    for portion in itertools.cycle(portions):
        unfilled = frames.unfilled()
        data = stream[: min(portion, len(unfilled))]
        if not data:
            break
        feed(frames, data)
        stream = stream[len(data) :]
        while (frame := frames.next()) is not None:
            found.append(frame)
    assert found == bodies


def test_an_announced_size_makes_no_memory() -> None:
    frames = ResponseFrames()
    feed(frames, (50 << 20).to_bytes(4, "big"))
    assert frames.next() is None
    first = len(frames.unfilled())
    frames.received(first)
    assert first + len(frames.unfilled()) < 1 << 20


@pytest.mark.parametrize("size", [-1, 0, 3, 101, 2**31 - 1])
def test_an_invalid_size_is_rejected_before_the_rest_arrives(size: int) -> None:
    frames = ResponseFrames(100)
    feed(frames, size.to_bytes(4, "big", signed=True))
    with pytest.raises(InvalidResponseError, match=rf"a response of {size} bytes"):
        frames.next()


def test_memory_is_used_again_once_the_response_is_dropped() -> None:
    frames, stream = ResponseFrames(), framed(bytes(200_000))

    def respond() -> Buffer:
        at = 0
        while at < len(stream):
            unfilled = frames.unfilled()
            portion = stream[at : at + len(unfilled)]
            unfilled[: len(portion)] = portion
            frames.received(len(portion))
            at += len(portion)
        found = frames.next()
        assert found is not None
        return found

    def memory(frame: Buffer) -> int:
        assert isinstance(frame, memoryview)
        return id(frame.obj)

    respond()
    kept = respond()
    first = memory(kept)
    second = memory(respond())
    assert second != first, "the response is still in use"
    del kept
    assert memory(respond()) == second


def test_an_answer_of_an_http_server_is_recognised() -> None:
    frames = ResponseFrames()
    feed(frames, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(InvalidResponseError, match="the answer is HTTP, not Kafka's protocol"):
        frames.next()
