"""A reader continues after a damaged batch only if it is certain where that ends."""

from __future__ import annotations

import pytest

from lakelog.client.consumer.damage import DamagedHeader, with_damaged
from lakelog.records.batch import CorruptRecord, iter_batches
from lakelog.records.builder import BatchBuilder

END = 9
LENGTH_AT, MAGIC_AT, ATTRIBUTES_AT, DELTA_AT, COUNT_AT = 8, 16, 21, 23, 57


def batch(base: int) -> bytearray:
    builder = BatchBuilder()
    for number in range(3):
        builder.append(number, None, b"value")
    return builder.build(base_offset=base)


def response(index: int, at: int, bit: int = 1) -> bytes:
    """Return three batches of three records, one of them with a flipped bit."""
    batches = [batch(base) for base in (0, 3, 6)]
    batches[index][at] ^= bit
    return b"".join(batches)


def read(data: bytes, offset: int = 0, end: int = END) -> list[tuple[int, int, bool]]:
    records = memoryview(data)
    kept = with_damaged(list(iter_batches(records)), records, offset, end)
    return [
        (header.base_offset, header.last_offset, isinstance(header, DamagedHeader))
        for header, _ in kept
    ]


@pytest.mark.parametrize("at", [MAGIC_AT, ATTRIBUTES_AT + 1, COUNT_AT + 3, -1])
@pytest.mark.parametrize("index", [0, 1])
def test_a_batch_before_another_one_ends_where_that_begins(index: int, at: int) -> None:
    found = read(response(index, at))
    assert found == [(base, base + 2, base == index * 3) for base in (0, 3, 6)]


def test_the_last_batch_must_have_as_many_records_as_offsets() -> None:
    assert read(response(2, -1))[-1] == (6, 8, True)
    with pytest.raises(CorruptRecord, match="offset 6 is damaged, and so is its header"):
        read(response(2, COUNT_AT + 3))


def test_a_damaged_marker_is_no_marker() -> None:
    records = memoryview(response(0, ATTRIBUTES_AT + 1, 0x30))
    ((header, _), *_) = with_damaged(list(iter_batches(records)), records, 0, END)
    assert (header.is_control, header.is_transactional) == (False, False)
    assert header.attributes == 0x30


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("bit", [1, 2, 0x40])
def test_a_wrong_last_offset_is_an_error(index: int, bit: int) -> None:
    with pytest.raises(CorruptRecord, match="is damaged, and so is its header"):
        read(response(index, DELTA_AT + 3, bit))


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("bit", [1, 2, 4, 8, 16])
def test_a_wrong_length_is_an_error(index: int, bit: int) -> None:
    with pytest.raises(CorruptRecord):
        read(response(index, LENGTH_AT + 3, bit))


def test_a_batch_outside_of_the_readable_log_is_an_error() -> None:
    with pytest.raises(CorruptRecord):
        read(response(2, -1), end=8)
    with pytest.raises(CorruptRecord):
        read(bytes(response(0, -1)[: len(batch(0))]), offset=3)
