from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.records.batch import CorruptRecord, check_crc, read_header
from lakelog.records.builder import BatchBuilder, with_codec
from lakelog.records.compression import Codec
from lakelog.records.record import decode_records


def test_flags_of_the_builder() -> None:
    builder = BatchBuilder()
    builder.append(0, b"\0\0\0\1", b"\0" * 6)
    header = read_header(builder.build(3, 4, is_transactional=True, is_control=True))
    assert header.is_control
    assert header.is_transactional


@given(
    sizes=st.lists(st.integers(0, 9000), max_size=40),
    limit=st.integers(100, 30_000),
    first=st.integers(0, 2),
)
def test_extending_equals_appending(sizes: list[int], limit: int, first: int) -> None:
    values = [b"x" * size for size in sizes]
    one, other = BatchBuilder(), BatchBuilder()
    for builder in (one, other):
        for _ in range(first):
            builder.append(10, b"k", b"v")
    taken = one.extend(7, values, limit)
    for value in values[:taken]:
        other.append(7, None, value)
    assert (one.count, one.size_estimate) == (other.count, other.size_estimate)
    assert taken <= 1 or one.size_estimate <= limit
    assert taken == len(values) or one.size_estimate + len(values[taken]) + 32 > limit
    if one.count:
        assert one.build() == other.build()


def test_golden_bytes() -> None:
    """Every field by hand; the checksum was computed by Apache Kafka's own classes."""
    builder = BatchBuilder()
    builder.append(1_600_000_000_000, b"k", None, [("h", b"x"), ("n", None)])
    batch = builder.build(9, 1, 5, leader_epoch=3)
    record = bytes.fromhex("1c 00 00 00 02 6b 01 04 02 68 02 78 02 6e 01")
    assert batch[61:] == record
    assert batch[:17] == bytes(8) + (49 + 15).to_bytes(4, "big") + b"\0\0\0\3\2"
    assert batch[21:27] == bytes(6)
    assert batch[57:61] == b"\0\0\0\1"


def test_a_value_without_bytes_leaves_the_earlier_records() -> None:
    builder = BatchBuilder()
    taken = [b"first", b"second", "third"]
    with pytest.raises(TypeError):
        builder.extend(5, taken, 1 << 20)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        builder.append(5, b"key", 3)  # type: ignore[arg-type]
    batch = builder.build()
    records = decode_records(batch, read_header(batch), 1 << 20)
    assert [record.value for record in records] == [b"first", b"second"]


def test_the_greatest_timestamp_may_be_that_of_any_record() -> None:
    builder = BatchBuilder()
    for timestamp in (10, 30, 20, 5):
        builder.append(timestamp, None, b"")
    header = read_header(builder.build())
    assert (header.base_timestamp, header.max_timestamp) == (10, 30)


def test_an_empty_batch_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="at least one record"):
        BatchBuilder().build()


LIMIT = 1 << 20


def make(codec: Codec) -> bytearray:
    builder = BatchBuilder(codec)
    for number in range(50):
        builder.append(1_000 + number, b"key", b"value %d" % number, [("h", None), ("g", b"x")])
    return builder.build(producer_id=7, producer_epoch=2, base_sequence=40)


@pytest.mark.parametrize("before", Codec)
@pytest.mark.parametrize("after", Codec)
def test_only_the_wrapping_changes(before: Codec, after: Codec) -> None:
    batch = make(before)
    header = read_header(batch)
    changed = with_codec(batch, header, after, LIMIT)
    now = read_header(changed)
    assert now.size == len(changed)
    assert now.codec == after
    assert check_crc(changed, 0, now)
    assert decode_records(changed, now, LIMIT) == decode_records(batch, header, LIMIT)
    assert (now.producer_id, now.producer_epoch, now.base_sequence) == (7, 2, 40)
    assert (now.base_timestamp, now.max_timestamp) == (1_000, 1_049)


def test_a_bomb_is_not_unwrapped() -> None:
    builder = BatchBuilder(Codec.ZSTD)
    builder.append(0, None, bytes(4 << 20))
    batch = builder.build()
    with pytest.raises(CorruptRecord):
        with_codec(batch, read_header(batch), Codec.NONE, LIMIT)
