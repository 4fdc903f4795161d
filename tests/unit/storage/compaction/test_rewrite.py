"""Batches that lose records to compaction."""

from __future__ import annotations

import pytest

from lakelog.records.batch import check_crc, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.record import decode_records, record_bytes
from lakelog.storage.compaction.records import Selection, select_records
from lakelog.storage.compaction.rewrite import delete_horizon, emptied, rebuilt
from storage_kit import NOW, make_batch

HORIZON = NOW + 5_000


def batch_of(codec: int = Codec.NONE) -> bytearray:
    builder = BatchBuilder(codec)
    for number in range(4):
        builder.append(NOW + number, b"k%d" % (number % 2), b"v%d" % number)
    return builder.build(7, 2, 40, base_offset=100, leader_epoch=5)


def newest_of_each_key(data: bytes) -> Selection:
    return select_records(data, 4, 100, {b"k0": 102, b"k1": 103}, 103, drop_tombstones=False)


@pytest.mark.parametrize("codec", list(Codec))
def test_offsets_producer_and_codec_stay(codec: Codec) -> None:
    batch = batch_of(codec)
    header = read_header(batch)
    data = bytes(record_bytes(batch, header, 1 << 20))
    result = rebuilt(header, data, newest_of_each_key(data), None)
    after = read_header(result)
    assert check_crc(result, 0, after)
    assert (after.base_offset, after.last_offset, after.records_count) == (100, 103, 2)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (7, 2, 40)
    assert (after.partition_leader_epoch, after.codec) == (5, codec)
    records = decode_records(result, after, 1 << 20)
    assert [(record.offset, record.value) for record in records] == [(102, b"v2"), (103, b"v3")]


def test_a_delete_horizon_moves_no_timestamp() -> None:
    """KIP-534: it takes the place of the base timestamp."""
    batch = batch_of()
    header = read_header(batch)
    data = bytes(record_bytes(batch, header, 1 << 20))
    assert delete_horizon(header) is None
    result = rebuilt(header, data, newest_of_each_key(data), HORIZON)
    after = read_header(result)
    assert delete_horizon(after) == HORIZON
    assert after.max_timestamp == NOW + 3
    records = decode_records(result, after, 1 << 20)
    assert [record.timestamp for record in records] == [NOW + 2, NOW + 3]


def test_an_emptied_batch_keeps_the_sequence_of_its_producer() -> None:
    """The next batch of the producer would be out of sequence without it."""
    header = read_header(make_batch(3, codec=Codec.GZIP, producer=(7, 2, 40), transactional=True))
    result = emptied(header)
    after = read_header(result)
    assert check_crc(result, 0, after)
    assert (after.records_count, after.last_offset_delta, after.size) == (0, 2, 61)
    assert (after.producer_id, after.last_sequence) == (7, 42)
    assert after.is_transactional
    assert after.codec == Codec.NONE, "there is nothing to decompress"
    assert decode_records(result, after, 1 << 20) == []
