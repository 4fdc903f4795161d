"""`.txnindex`: the aborted transactions whose markers lie in one segment.

    0 version i16 (0)   2 producer id i64   10 first offset i64   18 last offset i64 (the marker's)
    26 last stable offset i64, right after the marker was written

Entries rise by their last offset. A segment without entries has no such file, and most segments
have none. An entry is written before its marker, so that no marker is ever missing from the index.
The rest of a failed write is cut off at once, or else before the next write.

The file is never synced, because a start notices its loss in a power failure. `known-logs` has its
checksum together with the recovery point. Beyond that point recovery rebuilds it from the log.
Below that point a file with another checksum is rebuilt before it is first used. Without
`known-logs` an unclean start rebuilds all of them.

Source: `TransactionIndex` and `AbortedTxn` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from lakelog.records import crc
from lakelog.runtime.api import Disk
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import log_rebuild, read_if_exists

ENTRY_SIZE = 34
_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_OFFSET_MAX = (1 << 63) - 1


class AbortedTransaction(NamedTuple):
    """A transaction with records from `first_offset` on; `last_offset` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """The last stable offset right after the marker was written."""


def encode_aborted(entries: Sequence[AbortedTransaction]) -> bytes:
    """Return the content of a `.txnindex` file (`AbortedTxn` of Kafka)."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode_aborted(
    data: bytes, base_offset: int, end_offset: int
) -> list[AbortedTransaction] | None:
    """Return the entries of a segment's file; `None` if it cannot be that segment's.

    The segment's records are from `base_offset` up to `end_offset`, exclusive.
    """
    # The rest of a write that a crash interrupted.
    if len(data) % ENTRY_SIZE:
        return None
    entries = []
    previous = base_offset - 1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        last = entry.last_offset
        if (
            version != _VERSION
            or entry.producer_id < 0
            or not previous < last < end_offset
            or not 0 <= entry.first_offset < last
            or not 0 <= entry.last_stable_offset <= last + 1
        ):
            return None
        previous = last
        entries.append(entry)
    return entries if _is_stable(entries) else None


def _is_stable(entries: Sequence[AbortedTransaction]) -> bool:
    """Return whether last stable offsets agree with later entries.

    A transaction that had begun and is aborted later was not decided. A search ends at the first
    entry with a last stable offset beyond its range, and would miss one otherwise.
    """
    earliest = previous = _OFFSET_MAX
    # From the end, because an entry may be contradicted only by transactions that end after it.
    for entry in reversed(entries):
        earliest = min(earliest, previous)
        if earliest < entry.last_offset and entry.last_stable_offset > earliest:
            return False
        previous = entry.first_offset
    return True


class TxnIndex:
    """The transaction index of one segment. `None` entries have not been read."""

    __slots__ = ("_checksum", "entries", "error", "torn")

    def __init__(
        self, entries: list[AbortedTransaction] | None, checksum: int | None = None
    ) -> None:
        """`checksum` is the CRC-32C that the file should have, if that is known."""
        self.entries = entries
        self._checksum = checksum
        self.torn = False
        """Whether the file may have more than the entries, after a failed write."""
        self.error: CorruptLog | None = None
        """Why the entries cannot be rebuilt from the log; a restart tries again."""

    def unread(self) -> TxnIndex:
        """Return a copy whose entries have not been read."""
        return TxnIndex(None, self._checksum)

    def read(self, disk: Disk, path: Path, base_offset: int, end_offset: int) -> bool:
        """Read `entries`; return false for a file that is damaged. Raises `OSError`."""
        if self.entries is None:
            data = read_if_exists(disk, path) or b""
            # The file is never synced, so after a power failure an old, shorter version may be
            # valid in itself. Only the checksum shows that entries are missing.
            if self._checksum in (None, crc.crc32c(data)):
                self.entries = decode_aborted(data, base_offset, end_offset)
            if self.entries is None:
                log_rebuild("%s is damaged; rebuilding it", path)
        return self.entries is not None

    def checksum(self, disk: Disk, path: Path) -> int:
        """Return the CRC-32C of the file as it should be. Raises `OSError`."""
        if self._checksum is None:
            entries = self.entries
            data = read_if_exists(disk, path) if entries is None else encode_aborted(entries)
            self._checksum = crc.crc32c(data or b"")
        return self._checksum

    def write(self, disk: Disk, path: Path, entry: AbortedTransaction) -> None:
        """Write an entry to the file; `keep` adds it to the index. Raises `OSError`."""
        assert self.entries is not None
        # Before the write: if it fails half-way, the next one has to truncate the file first.
        self.torn = True
        self._put(disk, path, len(self.entries) * ENTRY_SIZE, encode_aborted([entry]))

    def keep(self, entry: AbortedTransaction) -> None:
        """Add the entry last written: its marker has been appended."""
        assert self.entries is not None
        assert not self.entries or self.entries[-1].last_offset < entry.last_offset
        self.entries.append(entry)
        if self._checksum is not None:
            self._checksum = crc.crc32c(encode_aborted([entry]), self._checksum)
        self.torn = False

    def cut(self, disk: Disk, path: Path) -> None:
        """Truncate the file after the entries. Raises `OSError`."""
        if self.torn:
            assert self.entries is not None
            self._put(disk, path, len(self.entries) * ENTRY_SIZE, b"")
            self.torn = False

    def _put(self, disk: Disk, path: Path, position: int, data: bytes) -> None:
        with closing(disk.open(path, create=True)) as file:
            file.truncate(position)
            if data:
                file.write_at(position, data)
