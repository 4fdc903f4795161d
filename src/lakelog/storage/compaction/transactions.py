"""Transactions in a compaction: which were aborted, and which markers may be dropped.

`find_aborted` reads the batch headers of the whole log and returns every aborted transaction with
the first of its records that still exists. A `CleanedTransactions` then follows each of the two
passes of a compaction (noting keys, and cleaning). Data of an aborted transaction is dropped at
once. A marker may be dropped when no batch of its transaction is left.

Source: KIP-98, KIP-534; `CleanedTransactionMetadata` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.control import read_marker
from lakelog.runtime.api import Buffer, File
from lakelog.storage.errors import CorruptLog
from lakelog.storage.segments.scan import scan_headers
from lakelog.storage.segments.txn_index import AbortedTransaction


def find_aborted(files: Iterable[tuple[File, int]]) -> list[AbortedTransaction]:
    """Return the aborted transactions with data in these segments, sorted by first offset.

    `files` are (file, size) in order. They must include the markers, so pass the whole log. Raises
    `CorruptLog` for an invalid batch, and `OSError`.
    """
    aborted: list[AbortedTransaction] = []
    ongoing: dict[int, int] = {}
    for file, size in files:
        for position, header in scan_headers(file, 0, size):
            if not header.is_transactional:
                continue
            producer_id, base = header.producer_id, header.base_offset
            if not header.is_control:
                ongoing.setdefault(producer_id, base)
                continue
            first = ongoing.pop(producer_id, None)
            if first is not None and _is_abort(file, position, header):
                stable = min(ongoing.values(), default=base + 1)
                aborted.append(AbortedTransaction(producer_id, first, base, stable))
    return sorted(aborted, key=lambda entry: entry.first_offset)


def _is_abort(file: File, position: int, header: BatchHeader) -> bool:
    try:
        marker = read_marker(file.read_at(position, header.size), header)
    except CorruptRecord as error:
        raise CorruptLog(file.path, position, str(error)) from error
    return marker is not None and not marker.commit


class CleanedTransactions:
    """The open transactions at the current batch of a pass; each batch is reported in order."""

    __slots__ = ("_aborted", "_first_kept", "_ongoing", "_seen", "retained")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = deque(aborted)
        self._ongoing: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        """Producers whose open transaction has a batch in the log."""
        self._first_kept: dict[int, int] = {}
        """First kept offset of the open transaction of each producer."""
        self.retained: list[AbortedTransaction] = []
        """Aborted transactions with kept batches, for the index of the segment being written."""

    def on_data(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        self._seen.add(header.producer_id)
        return header.producer_id in self._ongoing

    def on_kept(self, header: BatchHeader) -> None:
        """Note that the batch, or at least its header, is kept."""
        if header.is_transactional and not header.is_control:
            self._first_kept.setdefault(header.producer_id, header.base_offset)

    def on_marker(self, batch: Buffer, header: BatchHeader) -> bool:
        """End the transaction of a marker; return whether the log has no batch of it.

        Such a marker may be dropped. Raises `CorruptRecord`.
        """
        if not header.records_count:
            return True
        marker = read_marker(batch, header)
        if marker is None:
            return False
        producer_id = header.producer_id
        was_aborted = self._ongoing.pop(producer_id, None) is not None
        was_seen = producer_id in self._seen
        self._seen.discard(producer_id)
        first = self._first_kept.pop(producer_id, None)
        if was_aborted and first is not None:
            end = header.base_offset
            stable = min(self._first_kept.values(), default=end + 1)
            self.retained.append(AbortedTransaction(producer_id, first, end, stable))
        return not was_seen

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0].first_offset <= offset:
            entry = self._aborted.popleft()
            self._ongoing.setdefault(entry.producer_id, entry)
