"""Encodings with holes."""

from __future__ import annotations

import struct

import pytest

from lakelog.wire.template import Template


def encoded(number: int) -> bytes:
    return struct.pack(">2siqh3si", b"ab", number, number, 7, b"xyz", number)


def test_packed_values_are_unpacked() -> None:
    template = Template(encoded(0), encoded(-1), "iqi")
    assert template.size == len(encoded(0))
    packed = template.pack(5, -6, 1 << 30)
    assert packed == struct.pack(">2siqh3si", b"ab", 5, -6, 7, b"xyz", 1 << 30)
    assert template.unpack(b"..." + packed + b"...", 3) == (5, -6, 1 << 30)


@pytest.mark.parametrize("position", [0, 1, 14, 15, 16, 17, 18])
def test_a_difference_outside_of_the_holes_is_seen(position: int) -> None:
    template = Template(encoded(0), encoded(-1), "iqi")
    packed = bytearray(template.pack(1, 2, 3))
    packed[position] ^= 1
    assert template.unpack(packed, 0) is None


@pytest.mark.parametrize(
    ("zeros", "ones", "holes"),
    [
        (b"\0\0", b"\xff", "h"),
        (b"\0\0", b"\xff\xff", "i"),
        (b"\0\0\0\0", b"\xff\xff\xff\xff", "h"),
        (b"\0\0", b"\xff\xff", "hh"),
        (b"a", b"a", "b"),
    ],
)
def test_holes_that_are_not_there(zeros: bytes, ones: bytes, holes: str) -> None:
    with pytest.raises(ValueError, match=r"holes|encodings"):
        Template(zeros, ones, holes)


def test_an_encoding_that_is_one_hole() -> None:
    template = Template(b"\0" * 8, b"\xff" * 8, "q")
    assert template.unpack(template.pack(-9), 0) == (-9,)


@pytest.mark.parametrize("count", [1, 2, 64])
def test_rows_are_packed_one_after_the_other(count: int) -> None:
    template = Template(encoded(0), encoded(-1), "iqi")
    columns = [list(range(start, start + count)) for start in (0, -5, 1 << 20)]
    rows = [template.pack(*row) for row in zip(*columns, strict=True)]
    assert template.pack_rows(count, *columns) == b"".join(rows)
