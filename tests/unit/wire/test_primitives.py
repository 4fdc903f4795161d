from __future__ import annotations

import pytest

from lakelog.wire.primitives import (
    MAX_UNKNOWN_TAGS,
    WireError,
    decode_uvarint,
    encode_uvarint,
    skip_tagged_fields,
)

# From the Protocol Buffers documentation and by hand from the definition.
UVARINTS = [
    (0, b"\x00"),
    (127, b"\x7f"),
    (128, b"\x80\x01"),
    (300, b"\xac\x02"),
    (16_383, b"\xff\x7f"),
    (16_384, b"\x80\x80\x01"),
    (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
]


@pytest.mark.parametrize(("value", "encoded"), UVARINTS)
def test_uvarints_both_ways(value: int, encoded: bytes) -> None:
    assert encode_uvarint(value) == encoded
    assert decode_uvarint(memoryview(b"?" + encoded + b"?"), 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"])
def test_more_than_32_bits_are_refused(encoded: bytes) -> None:
    with pytest.raises(WireError):
        decode_uvarint(memoryview(encoded), 0)


def test_a_uvarint_cut_short_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        decode_uvarint(memoryview(b"\x80"), 0)


def tagged_section(*tags: tuple[int, bytes]) -> memoryview:
    out = encode_uvarint(len(tags))
    for tag, payload in tags:
        out += encode_uvarint(tag) + encode_uvarint(len(payload)) + payload
    return memoryview(out)


def skip(section: memoryview, end: int | None = None) -> int:
    return skip_tagged_fields(section, 1, section[0], len(section) if end is None else end)


def test_unknown_tagged_fields_are_stepped_over() -> None:
    section = tagged_section((0, b"abc"), (9, b""), (200, b"x" * 300))
    assert skip(section) == len(section)


def test_as_many_unknown_tagged_fields_as_allowed() -> None:
    section = tagged_section(*((tag, b"") for tag in range(MAX_UNKNOWN_TAGS)))
    assert skip(section) == len(section)


@pytest.mark.parametrize(
    "section",
    [
        tagged_section(*((tag, b"") for tag in range(MAX_UNKNOWN_TAGS + 1))),
        tagged_section((1, b""), (1, b"")),
        tagged_section((2, b""), (1, b"")),
    ],
)
def test_too_many_or_unordered_tagged_fields_are_refused(section: memoryview) -> None:
    with pytest.raises(WireError):
        skip(section)


def test_a_tagged_field_past_the_end_is_refused() -> None:
    section = tagged_section((1, b"abcd"))
    with pytest.raises(WireError):
        skip(section, len(section) - 1)
