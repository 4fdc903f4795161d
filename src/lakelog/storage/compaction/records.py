"""Reads the records of a batch for a compaction, without an object per record, and rewrites it.

Both loops are hot: `note_keys` maps keys to offsets, `select_records` selects records to keep.
Records are ranges of bytes, which are copied unchanged. Nothing is trusted: a length that does not
fit raises `CorruptRecord`.

A long key is represented by a cryptographic digest, so that no two keys can be made to collide. A
short key is kept as it is; it equals no digest, because digests are longer.

A batch that loses records keeps its offsets, leader epoch, producer, sequence and codec. With a
delete horizon (KIP-534) that time replaces the base timestamp, and the records' timestamps are
relative to it.

Source: `MemoryRecords.filterTo` and `DefaultRecordBatch.writeEmptyHeader` of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from lakelog.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecord,
)
from lakelog.records.builder import rewritten
from lakelog.records.compression import compress
from lakelog.records.flat import flat
from lakelog.records.record import NULL, read_head
from lakelog.records.varint import encode_varint, read_varint


class Selection(NamedTuple):
    """The kept records of one batch; timestamps are milliseconds relative to the base."""

    ranges: list[tuple[int, int]]
    """Byte ranges of adjacent kept records, in order."""
    records_count: int
    has_tombstone: bool
    max_delta_ms: int
    """The largest timestamp of a kept record; 0 if none is kept."""


def note_keys(
    data: bytes, count: int, base_offset: int, start: int, offsets: dict[bytes, int]
) -> None:
    """Map the keys of the records at or after offset `start` to their offsets, in `offsets`.

    A long key is replaced by its digest, because all digests together stay small.

    Raises `CorruptRecord`.
    """
    try:
        _note_keys(data, count, base_offset, start, offsets)
    except IndexError:
        raise _cut_off() from None


@flat
def _read_key(
    data: bytes, position: int, previous: int, size: int
) -> tuple[int, int, int, int, int, int]:
    """Return end, time and offset of a record, and size, start and end of its key.

    The size is negative if there is no key. previous: the offset of the record before it.
    size: that of `data`.
    """
    end, delta_ms, delta, position = read_head(data, position)
    if delta <= previous:
        raise CorruptRecord("the offsets of a batch's records do not rise")
    length, position = read_varint(data, position)
    key_end = position + length if length > 0 else position
    if not key_end < end <= size:
        raise _cut_off()
    return end, delta_ms, delta, length, position, key_end


@flat
def _note_keys(
    data: bytes, count: int, base_offset: int, start: int, offsets: dict[bytes, int]
) -> None:
    position, delta, size = 0, -1, len(data)
    for _ in range(count):
        previous = delta
        end, _, delta, length, position, key_end = _read_key(data, position, previous, size)
        if length >= 0 and base_offset + delta >= start:
            key = data[position:key_end]
            if length >= DIGEST_SIZE:
                key = blake2b(key, digest_size=DIGEST_SIZE).digest()
            offsets[key] = base_offset + delta
        position = end
    if position != size:
        raise _cut_off()


def select_records(
    data: bytes,
    count: int,
    base_offset: int,
    offsets: Mapping[bytes, int],
    latest_offset: int,
    *,
    drop_tombstones: bool,
) -> Selection:
    """Return the records to keep: all after `latest_offset`, and the newest one of each key.

    With `drop_tombstones`, the newest record of a key is dropped if it has no value. Raises
    `CorruptRecord` if a record does not fit into `data`, or if offsets do not rise.
    """
    try:
        return _select(data, count, base_offset, offsets.get, latest_offset, drop_tombstones)
    except IndexError:
        raise _cut_off() from None


@flat
def _select(
    data: bytes,
    count: int,
    base_offset: int,
    lookup: Callable[[bytes, int], int],
    latest_offset: int,
    drop_tombstones: bool,
) -> Selection:
    ranges: list[tuple[int, int]] = []
    run_start = run_end = kept = max_delta = has_tombstone = 0
    position, delta, size = 0, -1, len(data)
    for _ in range(count):
        start, previous = position, delta
        end, delta_ms, delta, length, position, key_end = _read_key(data, position, previous, size)
        offset = base_offset + delta
        is_tombstone = data[key_end] == NULL
        if offset <= latest_offset:
            key = data[position:key_end]
            if length >= DIGEST_SIZE:
                key = blake2b(key, digest_size=DIGEST_SIZE).digest()
            if length < 0 or offset < lookup(key, -1) or (is_tombstone and drop_tombstones):
                position = end
                continue
        if not kept or delta_ms > max_delta:
            max_delta = delta_ms
        kept += 1
        has_tombstone |= is_tombstone
        if start != run_end:
            ranges.append((run_start, run_end))
            run_start = start
        run_end = position = end
    if position != size:
        raise _cut_off()
    ranges.append((run_start, run_end))
    ranges = [run for run in ranges if run[0] != run[1]]
    return Selection(ranges, kept, bool(has_tombstone), max_delta)


def join(data: bytes, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Return the kept records, one after the other."""
    return b"".join([data[start:end] for start, end in ranges])


@flat
def move_timestamps(data: bytes, count: int, by_ms: int, equal: bool) -> bytes:
    """Return the same records for a base timestamp that is `by_ms` later.

    equal: whether the records had the base timestamp, whatever their deltas. Raises `IndexError`
    for a record that is cut off, and `CorruptRecord` for a varint of more than ten bytes.
    """
    parts: list[bytes] = []
    position, encoded = 0, encode_varint(-by_ms)
    for _ in range(count):
        length, position = read_varint(data, position)
        end, attributes = position + length, data[position : position + 1]
        position += 1
        delta_ms, position = read_varint(data, position)
        if not equal:
            encoded = encode_varint(delta_ms - by_ms)
        size = 1 + len(encoded) + end - position
        parts += (encode_varint(size), attributes, encoded, data[position:end])
        position = end
    return b"".join(parts)


def _cut_off() -> CorruptRecord:
    return CorruptRecord("a record does not fit into its batch")


DIGEST_SIZE = 32
ENTRY_BYTES = 200
"""Upper bound of an entry's memory, while Python enlarges the hash table."""


class OffsetMap:
    """Offsets by key. The batch that fills the map may exceed `size_bytes * load_factor`."""

    __slots__ = ("entries_max", "latest_offset", "offsets")

    def __init__(self, size_bytes: int, load_factor: float) -> None:
        self.entries_max = max(int(size_bytes * load_factor) // ENTRY_BYTES, 1)
        self.offsets: dict[bytes, int] = {}
        """By key, or by the digest of a long key."""
        self.latest_offset = -1
        """The last offset that the map covers."""

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= self.entries_max


_KEPT_WHEN_EMPTY = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
_NO_TIMESTAMP = -1


def delete_horizon(header: BatchHeader) -> int | None:
    """Return when (ms) the batch's tombstones, or its marker, expire; `None` before a cleaning."""
    return header.base_timestamp if header.has_delete_horizon else None


def emptied(header: BatchHeader) -> bytearray:
    """Return the batch without records, with its offsets, producer and sequence.

    The broker needs them to detect a repeated or missing batch of that producer after a restart.
    Source: `DefaultRecordBatch.writeEmptyHeader` of Kafka.
    """
    attributes = header.attributes & _KEPT_WHEN_EMPTY
    return rewritten(header, attributes, _NO_TIMESTAMP, header.max_timestamp, 0, b"")


def rebuilt(header: BatchHeader, data: bytes, kept: Selection, horizon: int | None) -> bytearray:
    """Return the batch with the `kept` part of its records `data`, compressed as before.

    horizon: a new delete horizon in milliseconds since the epoch (KIP-534); `None` to keep the
    present base timestamp.
    """
    records = data if kept.ranges == [(0, len(data))] else join(data, kept.ranges)
    by_broker = header.attributes & LOG_APPEND_TIME
    newest = header.base_timestamp + kept.max_delta_ms
    if by_broker or header.is_control:
        # The broker set it, so it does not follow from the kept records.
        newest = header.max_timestamp
    base, attributes = header.base_timestamp, header.attributes
    if horizon is not None:
        attributes |= DELETE_HORIZON
        # With LogAppendTime all records have the batch's greatest timestamp, whatever their deltas.
        by_ms = horizon - (newest if by_broker else base)
        records = move_timestamps(records, kept.records_count, by_ms, bool(by_broker))
        base = horizon
    content = compress(header.codec, records) if header.codec else records
    return rewritten(header, attributes, base, newest, kept.records_count, content)
