from __future__ import annotations

from typing import Any

import pytest

from lakelog.records.batch import (
    HEADER_SIZE,
    CorruptRecord,
    check_crc,
    iter_batches,
    patch_offset_and_epoch,
    read_header,
    set_append_time,
)
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.record import decode_records


def make(count: int = 3, codec: int = Codec.NONE, **build: Any) -> bytearray:
    builder = BatchBuilder(codec)
    for index in range(count):
        builder.append(1_000 + index, b"k%d" % index, b"v" * index)
    return builder.build(**build)


def test_header_fields_are_read_as_written() -> None:
    batch = make(3, producer_id=7, producer_epoch=2, base_sequence=2**31 - 2, base_offset=40)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.records_count) == (40, 42, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_002)
    assert (header.producer_id, header.producer_epoch) == (7, 2)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 2, 0)
    assert (header.magic, header.codec, header.timestamp_type) == (2, 0, 0)
    assert header.size == len(batch)
    assert not (header.is_control or header.is_transactional or header.has_delete_horizon)
    assert check_crc(batch, 0, header)
    assert "offsets 40..42" in repr(header)


def test_a_batch_without_sequences_has_no_last_sequence() -> None:
    assert read_header(make()).last_sequence == -1


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    batch = make()
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecord):
        read_header(batch)


@pytest.mark.parametrize("size", [0, 1, HEADER_SIZE - 1])
def test_a_short_header_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptRecord):
        read_header(make()[:size])


def test_every_changed_byte_after_the_checksum_is_noticed() -> None:
    batch = make()
    header = read_header(batch)
    for position in range(21, len(batch)):
        batch[position] ^= 1
        assert not check_crc(batch, 0, header), position
        batch[position] ^= 1
    assert not check_crc(batch[:-1], 0, header)


def test_batches_are_cut_apart_and_a_trailing_part_is_left_out() -> None:
    first, second = make(1), make(2)
    both = first + second
    found = [(header.records_count, bytearray(batch)) for header, batch in iter_batches(both)]
    assert found == [(1, first), (2, second)]
    assert [header.records_count for header, _ in iter_batches(both[:-1])] == [1]
    assert list(iter_batches(first[:30])) == []


def test_offset_and_epoch_do_not_touch_the_checksum() -> None:
    batch = bytearray(5) + make()
    patch_offset_and_epoch(memoryview(batch), 5, 1 << 40, 17)
    header = read_header(batch, 5)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 17)
    assert check_crc(batch, 5, header)


@pytest.mark.parametrize("codec", list(Codec))
def test_append_time_changes_every_record_and_the_checksum(codec: Codec) -> None:
    batch = make(3, codec)
    header = read_header(batch)
    set_append_time(batch, 0, header, 5_000)
    assert read_header(batch) == header
    assert header.timestamp_type == 1
    assert check_crc(batch, 0, header)
    times = [record.timestamp for record in decode_records(batch, header, 1 << 20)]
    assert times == [5_000] * 3
