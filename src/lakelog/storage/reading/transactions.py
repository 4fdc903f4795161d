"""Aborted transactions of a log: which ones a read concerns, and whether an index agrees with it.

Source: `UnifiedLog.collectAbortedTransactions` of `org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from lakelog.records.batch import BatchHeader
from lakelog.storage.indexes.txn_index import AbortedTransaction
from lakelog.storage.segments.scan import scan_headers
from lakelog.storage.segments.segment import Segment

_COMPARED_MAX = 1000


def are_in(
    holder_of: Callable[[int], Segment | None],
    segment: Segment,
    entries: Sequence[AbortedTransaction],
) -> bool:
    """Return whether transactions end and begin in the log where the entries of a segment say.

    `holder_of` returns the segment of an offset, `None` for one before the first. Only the first
    thousand entries are compared: more would take too long. Raises `CorruptLog` or `OSError`.
    """
    for entry in entries[:_COMPARED_MAX]:
        marker = _batch_at(segment, entry.last_offset)
        if marker is None or not marker.is_control or marker.producer_id != entry.producer_id:
            return False
        if not _begins(holder_of, entry.first_offset, entry.producer_id):
            return False
        stable = entry.last_stable_offset
        if stable <= entry.last_offset and not _begins(holder_of, stable, None):
            return False
    return True


def _begins(
    holder_of: Callable[[int], Segment | None], offset: int, producer_id: int | None
) -> bool:
    """Return whether a transactional batch (of a producer) begins there, or the place is gone."""
    segment = holder_of(offset)
    if segment is None:
        return True
    header = _batch_at(segment, offset)
    return (
        header is not None
        and header.is_transactional
        and not header.is_control
        and producer_id in (None, header.producer_id)
    )


def holder(segments: Sequence[Segment], offset: int) -> Segment | None:
    """Return the segment that may have an offset; `None` for one before the first."""
    number = bisect_right(segments, offset, key=_base_offset) - 1
    return segments[number] if number >= 0 else None


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _batch_at(segment: Segment, offset: int) -> BatchHeader | None:
    """Return the header of the batch that begins at `offset`."""
    position = segment.position_of(offset)
    for _, header in scan_headers(segment.open().file, position, segment.size):
        return header if header.base_offset == offset else None
    return None


def collect_aborted(
    segments: Sequence[Segment],
    start: int,
    end: int,
    aborted_in: Callable[[Segment], Sequence[AbortedTransaction]],
) -> list[AbortedTransaction]:
    """Return transactions with records from `start` up to `end`, sorted by first offset.

    Their markers may lie in any of `segments`, the first of which holds `start`. The search ends at
    an entry whose last stable offset is at or beyond `end`: all before it was decided by then. Both
    ends are offsets, `end` exclusive. Raises as `aborted_in`. Source:
    `LogSegment.collectAbortedTxns` of Kafka.
    """
    aborted: list[AbortedTransaction] = []
    for segment in segments:
        for entry in aborted_in(segment):
            if entry.last_offset >= start and entry.first_offset < end:
                aborted.append(entry)
            if entry.last_stable_offset >= end:
                return sorted(aborted, key=_first_offset)
    return sorted(aborted, key=_first_offset)


def _first_offset(entry: AbortedTransaction) -> int:
    return entry.first_offset
