from __future__ import annotations

from typing import Any

import pytest

from lakelog.wire.framing import (
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from lakelog.wire.primitives import WireError
from lakelog.wire.schema import Message, array, int32, records, string


class PingRequest(Message, versions="0-1", flexible="1+"):
    text: str = string()


class PingResponse(Message, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    names: list[str] = array(string)
    batch: Any = records(nullable="0+")


class FakeApi:
    def __init__(self, key: int) -> None:
        self.key = key
        self.flexible_from = 1
        self.request: type[Message] = PingRequest
        self.response: type[Message] = PingResponse


PING = FakeApi(99)
API_VERSIONS = FakeApi(18)


class Range:
    def __len__(self) -> int:
        return 70_000


@pytest.mark.parametrize(
    ("version", "client_id", "frame"),
    [
        (0, "me", "00000010 0063 0000 00000007 0002 6d65 0002 6869"),
        (0, None, "0000000e 0063 0000 00000007 ffff 0002 6869"),
        (1, "me", "00000011 0063 0001 00000007 0002 6d65 00 03 6869 00"),
    ],
)
def test_requests(version: int, client_id: str | None, frame: str) -> None:
    parts = encode_request(PING, version, 7, client_id, PingRequest(text="hi"))
    data = b"".join(parts)
    assert data == bytes.fromhex(frame)
    *header, position = decode_request_header(data, 4, len(data), flexible=version == 1)
    assert header == [7, client_id]
    assert data[position:].startswith(b"\x03hi" if version else b"\x00\x02hi")


def test_the_client_id_keeps_its_plain_length_in_flexible_headers() -> None:
    data = bytes.fromhex("0063 0001 00000007 0003 c3b678 01 05 02 ffff") + b"body"
    _, found, position = decode_request_header(data, 0, len(data), flexible=True)
    assert found == "öx"
    assert data[position:] == b"body"


@pytest.mark.parametrize(
    ("data", "flexible"),
    [
        ("0063 0000 00000007", False),
        ("0063 0000 00000007 0005 61", False),
        ("0063 0000 00000007 fffe", False),
        ("0063 0000 00000007 0001 ff", False),
        ("0063 0001 00000007 ffff", True),
        ("0063 0001 00000007 ffff 01", True),
        ("0063 0001 00000007 ffff 01 05 09 00", True),
        ("0063 0001 00000007 ffff ffffffff0f", True),
        ("0063 0001 00000007 ffff 02 01 00 01 00", True),
    ],
)
def test_bad_request_headers(data: str, flexible: bool) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(WireError):
        decode_request_header(raw, 0, len(raw), flexible)


def test_a_client_id_may_be_as_long_as_its_length_can_say() -> None:
    raw = bytes.fromhex("0063 0000 00000007 7fff") + b"a" * 32_767
    assert decode_request_header(raw, 0, len(raw), flexible=False)[1] == "a" * 32_767


def test_a_header_must_end_before_the_frame_does() -> None:
    raw = bytes.fromhex("0063 0000 00000007 0004 61626364")
    with pytest.raises(WireError):
        decode_request_header(raw, 0, len(raw) - 1, flexible=False)


@pytest.mark.parametrize(
    ("api", "version", "frame"),
    [
        (PING, 0, "00000010 00000009 00000000 00000000 ffffffff"),
        (PING, 1, "0000000c 00000009 00 00000000 01 00 00"),
        (API_VERSIONS, 1, "0000000b 00000009 00000000 01 00 00"),
    ],
)
def test_responses(api: FakeApi, version: int, frame: str) -> None:
    data = b"".join(encode_response(api, version, 9, PingResponse()))
    assert data == bytes.fromhex(frame)
    assert decode_response(api, version, data[4:]) == (9, PingResponse())


def test_the_size_of_a_response_includes_ranges_of_files() -> None:
    batch = Range()
    parts = encode_response(PING, 1, 9, PingResponse(batch=batch))
    assert parts[1] is batch
    size = int.from_bytes(parts[0][:4], "big")
    assert size == sum(len(part) for part in parts) - 4


@pytest.mark.parametrize(
    "data", ["000000", "00000009", "00000009 01", "00000009 00 00000000 01 00"]
)
def test_bad_responses(data: str) -> None:
    with pytest.raises(WireError):
        decode_response(PING, 1, bytes.fromhex(data))
