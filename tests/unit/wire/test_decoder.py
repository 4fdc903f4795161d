from __future__ import annotations

import struct as binary_layout

import pytest

import reference_codec
from lakelog.wire.codec import decode, decode_prefix, encode
from lakelog.wire.primitives import (
    MAX_REQUEST_ELEMENTS,
    MAX_UNKNOWN_TAGS,
    WireError,
    encode_uvarint,
)
from sample_messages import FULL, Cargo, Choice, Item, Names, Numbers


def test_fields_absent_from_a_version_hold_their_defaults() -> None:
    decoded = decode(Cargo, encode(FULL, 0), 0)
    assert decoded.items is not None
    assert [item.size for item in decoded.items] == [7, 7]
    assert (decoded.blob, decoded.note, decoded.best) == (b"", "none", Item())


@pytest.mark.parametrize(
    ("version", "data"),
    [(0, "0000 ffff"), (0, "0000 0000 ffffffff"), (2, "0000 01 01 00"), (0, "0000 fffe")],
)
def test_null_where_the_version_has_none_cannot_be_decoded(version: int, data: str) -> None:
    with pytest.raises(WireError, match="null"):
        decode(Cargo, bytes.fromhex(data), version)


@pytest.mark.parametrize("version", list(Cargo.__versions__))
def test_every_truncation_is_refused(version: int) -> None:
    data = encode(FULL, version)
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode(Cargo, data, version, 0, end)
        with pytest.raises(WireError):
            decode_prefix(Cargo, data, version, 0, end)


@pytest.mark.parametrize("version", list(Cargo.__versions__))
def test_left_over_bytes_are_refused(version: int) -> None:
    data = encode(FULL, version)
    with pytest.raises(WireError, match="1 bytes left over"):
        decode(Cargo, data + b"\0", version)
    _, left = decode_prefix(Cargo, data + b"\0", version)
    assert left == 1


@pytest.mark.parametrize("count", [2**31 - 1, 1000, -2, -(2**31)])
def test_impossible_counts_are_refused_before_a_list_exists(count: int) -> None:
    head = bytes.fromhex("0000 0000")
    with pytest.raises(WireError):
        decode(Cargo, head + binary_layout.pack(">i", count) + bytes(100), 0)


def test_a_count_must_fit_the_remaining_bytes() -> None:
    with pytest.raises(WireError, match="a count of 51 elements"):
        decode(Names, binary_layout.pack(">i", 51) + bytes(100), 0)
    assert len(decode(Names, binary_layout.pack(">i", 50) + bytes(100), 0).names) == 50
    items = bytes.fromhex("0000 0000 00000011") + bytes(100)
    with pytest.raises(WireError, match="a count of 17 elements"):
        decode(Cargo, items, 1)


def test_a_message_has_a_limited_number_of_elements() -> None:
    names = encode_uvarint(MAX_REQUEST_ELEMENTS + 2) + b"\x01" * (MAX_REQUEST_ELEMENTS + 1) + b"\0"
    with pytest.raises(WireError, match="limit"):
        decode(Names, names, 1)
    decoded = decode(Names, names, 1, max_elements=MAX_REQUEST_ELEMENTS + 1)
    assert len(decoded.names) == MAX_REQUEST_ELEMENTS + 1


def test_elements_are_counted_over_all_arrays() -> None:
    data = encode(FULL, 3)
    assert decode(Cargo, data, 3, max_elements=4) == FULL
    with pytest.raises(WireError):
        decode(Cargo, data, 3, max_elements=3)


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(WireError, match="utf-8"):
        decode(Names, bytes.fromhex("02 03 c328 00"), 1)


def with_tags(*tags: tuple[int, bytes]) -> bytes:
    out = bytes.fromhex("0000 00 00 01 00 00") + encode_uvarint(len(tags))
    for tag, payload in tags:
        out += encode_uvarint(tag) + encode_uvarint(len(payload)) + payload
    return out


def test_unknown_tags_are_skipped_between_known_ones() -> None:
    data = with_tags((0, b"\x02b\0\0\0\x09\0"), (1, b"\x02n"), (2, b"??"), (500, b""))
    decoded = decode(Cargo, data, 3)
    assert (decoded.note, decoded.best) == ("n", Item(name="b", size=9))


@pytest.mark.parametrize(
    "data",
    [
        with_tags((1, b"\x02n"), (0, b"\x01\0\0\0\x09\0")),
        with_tags((1, b"\x02n"), (1, b"\x02n")),
        with_tags((1, b"\x02n?")),
        with_tags((1, b"\x03n")),
        bytes.fromhex("0000 00 00 01 00 00 01 01 01 026e"),
        bytes.fromhex("0000 00 00 01 00 00 01 01 03 026e"),
        bytes.fromhex("0000 00 00 01 00 00 01 02 03 0000"),
        with_tags(*((tag, b"") for tag in range(2, MAX_UNKNOWN_TAGS + 3))),
        with_tags((1, b"\x02n"))[:-1],
        with_tags((7, b"1234"))[:-1],
        bytes.fromhex("0000 00 00 01 00 00") + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_bad_tagged_fields_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(Cargo, data, 3)
    with pytest.raises(WireError):
        reference_codec.decode(Cargo, data, 3)


def test_any_nonzero_byte_is_true() -> None:
    data = bytearray(encode(Numbers(flag=True), 0))
    data[14] = 0x80
    assert decode(Numbers, data, 0).flag is True


def test_a_tagged_null_is_not_the_same_as_none_sent() -> None:
    assert decode(Choice, bytes.fromhex("ff 01 00 01 00"), 1) == Choice()
