from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.records.batch import CorruptRecord
from lakelog.records.varint import encode_varint, read_varint


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value: int) -> None:
    raw = encode_varint(value)
    assert len(raw) <= 10
    assert read_varint(b"\xff" + raw + b"\x01", 1) == (value, 1 + len(raw))


def test_numbers_of_up_to_four_bytes() -> None:
    for value in (*range(-9000, 9000), *range(-(1 << 20) - 99, (1 << 20) + 99, 97)):
        raw = encode_varint(value)
        assert read_varint(raw + b"\xff", 0) == (value, len(raw))


def test_table_varints_agree_with_long_ones() -> None:
    for value in (0, 1, 63, 64, 127, 128, 8191, 8192, 1 << 20):
        assert read_varint(encode_varint(value), 0)[0] == value
    assert [encode_varint(value).hex() for value in (-1, 63, 64, -65, 8191, 8192)] == [
        "01", "7e", "8001", "8101", "fe7f", "808001",
    ]  # fmt: skip


def test_a_varint_of_eleven_bytes_is_corrupt() -> None:
    with pytest.raises(CorruptRecord):
        read_varint(b"\x80" * 10 + b"\x01", 0)


def test_bits_above_the_64th_are_dropped_as_in_java() -> None:
    assert read_varint(b"\xff" * 9 + b"\x7f", 0) == (-(2**63), 10)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff"])
def test_a_truncated_varint_is_an_index_error(data: bytes) -> None:
    with pytest.raises(IndexError):
        read_varint(data, 0)
