"""What compaction needs to know of transactions: which were aborted, and which markers may go.

The log itself tells it: a first pass over the batch headers finds every aborted transaction with
its first record that is still there, a second one follows the cleaning. Data of an aborted
transaction goes at once; a marker may go when nothing of its transaction is left.

Source: KIP-98, KIP-534; `CleanedTransactionMetadata` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lakelog.records.batch import CONTROL, HEADER, HEADER_SIZE, TRANSACTIONAL, BatchHeader
from lakelog.records.errors import CorruptRecord
from lakelog.records.record import decode_records
from lakelog.runtime.api import Buffer, File
from lakelog.storage.errors import CorruptLog

ABORT = 0
COMMIT = 1
_MARKER_KEY = struct.Struct(">hh")
_ENTRY = struct.Struct(">hqqqq")
_WINDOW = 8192
_CONTROL_BYTES_MAX = 1 << 20
_LENGTH_MIN = 49


class AbortedTransaction(NamedTuple):
    """From its first record to its marker; `last_stable_offset` is where readers stood after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(entries: Iterable[AbortedTransaction]) -> bytes:
    """As in a `.txnindex` file: version 0, then the four numbers."""
    return b"".join(_ENTRY.pack(0, *entry) for entry in entries)


def marker_type(batch: Buffer, header: BatchHeader) -> int | None:
    """`ABORT`, `COMMIT` or another control record's type; none in an emptied control batch."""
    records = decode_records(batch, header, _CONTROL_BYTES_MAX)
    if not records:
        return None
    key = records[0].key
    if key is None or len(key) < _MARKER_KEY.size:
        raise CorruptRecord(f"the control record at offset {header.base_offset} has no type")
    return int(_MARKER_KEY.unpack_from(key)[1])


def find_aborted(files: Iterable[tuple[File, int]]) -> list[AbortedTransaction]:
    """The aborted transactions with data in these segments: (file, size), in order.

    `CorruptLog` for what is no batch. Markers must be in the files too: give it the whole log.
    """
    aborted: list[AbortedTransaction] = []
    ongoing: dict[int, int] = {}
    for file, size in files:
        for position, base, attributes, producer_id, length in _transactional(file, size):
            if not attributes & CONTROL:
                ongoing.setdefault(producer_id, base)
                continue
            first = ongoing.pop(producer_id, None)
            if first is not None and _is_abort(file, position, length):
                stable = min(ongoing.values(), default=base + 1)
                aborted.append(AbortedTransaction(producer_id, first, base, stable))
    return sorted(aborted, key=lambda entry: entry.first_offset)


def _is_abort(file: File, position: int, size: int) -> bool:
    data = file.read_at(position, size)
    try:
        return marker_type(data, BatchHeader(*HEADER.unpack_from(data))) == ABORT
    except CorruptRecord as error:
        raise CorruptLog(file.path, position, str(error)) from error


def _transactional(file: File, size: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Position, base offset, attributes, producer and size of each batch of a transaction."""
    window, start, position = b"", 0, 0
    while position < size:
        at = position - start
        if at + HEADER_SIZE > len(window):
            window, start, at = file.read_at(position, min(_WINDOW, size - position)), position, 0
            if len(window) < HEADER_SIZE:
                raise CorruptLog(file.path, position, "a batch header is cut off")
        fields = HEADER.unpack_from(window, at)
        length = fields[1] + 12
        if fields[1] < _LENGTH_MIN or position + length > size:
            raise CorruptLog(file.path, position, f"a batch of {length} bytes")
        if fields[5] & TRANSACTIONAL:
            yield position, fields[0], fields[5], fields[9], length
        position += length


class CleanedTransactions:
    """Follows a cleaning through the log, batch by batch."""

    __slots__ = ("_aborted", "_committed", "_ongoing", "_seen", "retained")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = deque(aborted)
        self._ongoing: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        """Producers of an ongoing aborted transaction of which a batch was met."""
        self._committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []
        """Those whose marker stays; whoever writes a segment's index takes them out."""

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        if header.producer_id in self._ongoing:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_marker(self, batch: Buffer, header: BatchHeader) -> bool:
        """Whether nothing is left of the transaction that this control batch ends."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        match marker_type(batch, header):
            case None:
                return True
            case kind if kind == ABORT:
                entry = self._ongoing.pop(producer_id, None)
                if entry is None or producer_id not in self._seen:
                    return True
                self._seen.discard(producer_id)
                self.retained.append(entry)
                return False
            case kind if kind == COMMIT:
                found = producer_id in self._committed
                self._committed.discard(producer_id)
                return not found
            case _:
                return False

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0].first_offset <= offset:
            entry = self._aborted.popleft()
            self._ongoing.setdefault(entry.producer_id, entry)
