from __future__ import annotations

import struct

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.network_client.errors import (
    InvalidResponseError,
    NegotiationError,
    NoCommonVersionError,
)
from lakelog.network_client.requests import Identity, NetworkClient
from lakelog.protocol.connections import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from lakelog.protocol.metadata import MetadataRequest, MetadataResponse
from lakelog.protocol.produce import ProduceRequest
from lakelog.protocol.registry import APIS
from lakelog.wire.codec import decode
from lakelog.wire.framing import decode_request_header, encode_response

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
