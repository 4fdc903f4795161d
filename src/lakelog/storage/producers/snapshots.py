"""The producer snapshots of one log: one at each segment's base, and the newest.

With a snapshot, the log before its offset need not be replayed. It is used only if its checksum is
right and the log reaches its offset; otherwise an older one, or the log itself, is used.

A file has the newest batch of every producer, up to the offset in its name:

    0 version i16 (1)   2 CRC-32C u32 of byte 6 on   6 count i32
    then per producer:
    0 id i64   8 epoch i16   10 last sequence i32   14 last offset i64   22 offset delta i32
    26 timestamp i64   34 coordinator epoch i32   38 first offset of the transaction i64 (-1 none)
    then per producer whose last marker has the number of a decision:
    0 id i64   8 number i64

Apache Kafka reads the first part, and counts the bytes behind it for the checksum only.
Source: `org.apache.kafka.storage.internals.log.ProducerStateManager`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from lakelog.records import crc
from lakelog.records.control import NO_DECISION
from lakelog.runtime.api import Disk
from lakelog.storage.files import SNAPSHOT, file_name, read_if_exists, remove_if_exists, replace
from lakelog.storage.producers.state import BatchMetadata, ProducerEntry, ProducerStateTable

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_DECISION = struct.Struct(">qq")
_VERSION = 1
_NO_BATCH = BatchMetadata(-1, -1, 0, -1)
_CRC_START = 6


class MalformedSnapshot(ValueError):  # noqa: N818 - a state of the file
    """The snapshot cannot be used; the state must be replayed from the log."""


def encode_snapshot(entries: Mapping[int, ProducerEntry]) -> bytes:
    """Return the content of a snapshot file, in the format of Kafka's `ProducerStateManager`."""
    rows = [struct.pack(">i", len(entries))]
    for producer_id, entry in entries.items():
        last = (
            entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, 0, entry.last_timestamp)
        )
        rows.append(
            _ENTRY.pack(
                producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
        )
    rows += [
        _DECISION.pack(producer_id, entry.decision)
        for producer_id, entry in entries.items()
        if entry.decision != NO_DECISION
    ]
    body = b"".join(rows)
    return struct.pack(">hI", _VERSION, crc.crc32c(body)) + body


def decode_snapshot(data: bytes) -> dict[int, ProducerEntry]:
    """Return the producers by id. Raises `MalformedSnapshot`."""
    if len(data) < _HEAD.size:
        raise MalformedSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise MalformedSnapshot(f"version {version} of producer snapshots is not known")
    if crc.crc32c(memoryview(data)[_CRC_START:]) != checksum:
        raise MalformedSnapshot("the checksum does not match")
    end = _HEAD.size + count * _ENTRY.size
    if count < 0 or len(data) < end or (len(data) - end) % _DECISION.size:
        raise MalformedSnapshot(f"{count} producers in {len(data)} bytes")
    entries = {}
    for row in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size : end]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator, txn = row
        entry = entries[producer_id] = ProducerEntry(epoch)
        if offset >= 0:
            entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator
        entry.txn_first_offset = txn
    for producer_id, decision in _DECISION.iter_unpack(memoryview(data)[end:]):
        if producer_id not in entries:
            raise MalformedSnapshot(f"the decision of producer {producer_id}, which is unknown")
        entries[producer_id].decision = decision
    return entries


class ProducerSnapshots:
    """The snapshot files of one log; `offsets` has their offsets, sorted."""

    __slots__ = ("_disk", "folder", "offsets")

    def __init__(self, disk: Disk, folder: Path, offsets: Iterable[int] = ()) -> None:
        self._disk = disk
        self.folder = folder
        self.offsets = sorted(offsets)

    def copy(self) -> ProducerSnapshots:
        """Return a copy for a thread, while the owner continues to write and remove files."""
        return ProducerSnapshots(self._disk, self.folder, self.offsets)

    def write(self, table: ProducerStateTable) -> None:
        """Write a snapshot at the table's end, unless there is one. Raises `OSError`."""
        offset = table.end_offset
        if offset in self.offsets[-1:]:
            return
        assert not self.offsets or self.offsets[-1] < offset, "of a part of the log that is gone"
        replace(self._disk, self._path(offset), encode_snapshot(table.entries))
        insort(self.offsets, offset)

    def newest(self, end_offset: int) -> tuple[int, dict[int, ProducerEntry]]:
        """Return the newest usable snapshot at or before `end_offset`; (-1, {}) without one.

        Removes unusable ones. Raises `OSError`.
        """
        for offset in reversed(self.offsets[: bisect_right(self.offsets, end_offset)]):
            data = read_if_exists(self._disk, self._path(offset))
            try:
                return offset, decode_snapshot(data or b"")
            except MalformedSnapshot:
                self._remove(offset)
        return -1, {}

    def remove_beyond(self, offset: int) -> None:
        """Remove, durably, the snapshots of a part of the log that no longer exists.

        A power failure must not restore one: by then the log may have reached its offset again,
        with other producers. Raises `OSError`.
        """
        removed = self.offsets[bisect_right(self.offsets, offset) :]
        for beyond in removed:
            self._remove(beyond)
        if removed:
            self._disk.sync_dir(self.folder)

    def remove_before(self, offset: int) -> None:
        """Remove snapshots that the first segment, which begins at `offset`, does not need.

        Raises `OSError`.
        """
        for before in [snapshot for snapshot in self.offsets if snapshot < offset]:
            self._remove(before)

    def remove_at(self, offset: int) -> None:
        """Remove the snapshot of a segment that was merged into the one before it.

        Raises `OSError`.
        """
        # The newest snapshot stays: a start replays the log from there.
        if offset in self.offsets[:-1]:
            self._remove(offset)

    def prune(self, bases: Collection[int]) -> None:
        """Remove all snapshots but the newest and those at a segment's base.

        Raises `OSError`.
        """
        for offset in self.offsets[:-1]:
            if offset not in bases:
                self._remove(offset)

    def _remove(self, offset: int) -> None:
        remove_if_exists(self._disk, self._path(offset))
        self.offsets = [snapshot for snapshot in self.offsets if snapshot != offset]

    def _path(self, offset: int) -> Path:
        return self.folder / file_name(offset, SNAPSHOT)
