"""Reading the keys of a batch's records, and choosing the records to keep."""

from __future__ import annotations

import pytest

from lakelog.records.batch import CorruptRecord, check_crc, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.record import decode_records, record_bytes
from lakelog.records.varint import encode_varint
from lakelog.storage.compaction.records import (
    DIGEST_SIZE,
    ENTRY_BYTES,
    OffsetMap,
    Selection,
    delete_horizon,
    emptied,
    note_keys,
    rebuilt,
    select_records,
)
from poison import record
from storage_kit import NOW, make_batch

NO_KEY, EMPTY_KEY = b"\x01", b"\x00"


@pytest.mark.parametrize("key", [b"\x02k", b"\x04k", EMPTY_KEY])
def test_a_record_that_ends_with_its_key_is_rejected(key: bytes) -> None:
    data = record(0, key=key, rest=b"")
    offsets: dict[bytes, int] = {}
    with pytest.raises(CorruptRecord, match="does not fit"):
        note_keys(data, 1, 0, 0, offsets)
    assert offsets == {}
    with pytest.raises(CorruptRecord, match="does not fit"):
        select_records(data, 1, 0, {}, 0, drop_tombstones=False)


def test_an_empty_key_is_a_key() -> None:
    data = record(0, key=EMPTY_KEY) + record(1, key=NO_KEY) + record(2, key=EMPTY_KEY)
    offsets: dict[bytes, int] = {}
    note_keys(data, 3, 0, 0, offsets)
    assert offsets == {b"": 2}
    selection = select_records(data, 3, 0, offsets, 2, drop_tombstones=False)
    assert selection.records_count == 1


def test_a_map_is_full_when_its_share_of_the_memory_is_used() -> None:
    offsets = OffsetMap(10 * ENTRY_BYTES, 0.5)
    for number in range(5):
        assert not offsets.is_full
        offsets.offsets[b"%d" % number] = number
    assert offsets.is_full


def test_the_smallest_map_has_one_key_so_that_each_pass_cleans_something() -> None:
    offsets = OffsetMap(1, 0.0)
    assert not offsets.is_full
    offsets.offsets[b"k"] = 1
    assert offsets.is_full


def stored_key(key: bytes) -> bytes:
    offsets: dict[bytes, int] = {}
    note_keys(record(0, key=encode_varint(len(key)) + key), 1, 0, 0, offsets)
    return next(iter(offsets))


def test_a_key_takes_bounded_memory_and_is_not_mistaken_for_another() -> None:
    long_keys = [b"x" * DIGEST_SIZE, b"x" * (DIGEST_SIZE + 1), b"y" * (1 << 20)]
    digests = [stored_key(key) for key in long_keys]
    assert {len(digest) for digest in digests} == {DIGEST_SIZE}
    assert len(set(digests)) == len(long_keys)


def test_a_short_key_equals_no_digest() -> None:
    longest = b"k" * (DIGEST_SIZE - 1)
    assert stored_key(longest) == longest
    assert stored_key(b"") == b""
    digest = stored_key(b"long" * 20)
    assert stored_key(digest) != digest, "a key that looks like a digest is digested itself"


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
