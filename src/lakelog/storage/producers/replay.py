"""Replay of a log's batches into its producer state, after a start or a truncation.

Source: `LogSegment.recover` and `UnifiedLog.rebuildProducerState` of
`org.apache.kafka.storage.internals.log`.
"""

from __future__ import annotations

from collections.abc import Collection

from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.control import EndTransactionMarker, read_marker
from lakelog.storage.errors import CorruptLog
from lakelog.storage.indexes.txn_index import AbortedTransaction
from lakelog.storage.names import LOG
from lakelog.storage.producers.snapshots import ProducerSnapshots
from lakelog.storage.producers.state import ProducerStateTable
from lakelog.storage.segments.aborted import replace_aborted
from lakelog.storage.segments.scan import scan_headers
from lakelog.storage.segments.segment import Segment
from lakelog.storage.segments.segment_list import SegmentList


def rebuild(
    table: ProducerStateTable,
    snapshots: ProducerSnapshots,
    segments: SegmentList,
    end_offset: int,
    reindexed: Collection[Segment],
) -> None:
    """Compute the state at `end_offset`, the log's end, from the newest snapshot and later batches.

    The transaction indexes of `reindexed` segments are rebuilt on the way. Raises `CorruptLog` or
    `OSError`.
    """
    before = min((segment.base_offset for segment in reindexed), default=end_offset)
    start, entries = snapshots.newest(before)
    assert start <= before, "a snapshot of later records has lost how they began"
    table.load(entries)
    for segment in segments:
        aborted = replay(table, segment, start)
        if segment in reindexed:
            replace_aborted(segment, aborted)
    table.end_offset = end_offset
    segments.note_aborted()


def replay(table: ProducerStateTable, segment: Segment, start: int) -> list[AbortedTransaction]:
    """Apply the batches of a segment from offset `start` on; return which transactions it aborts.

    Raises `CorruptLog` or `OSError`.
    """
    aborted: list[AbortedTransaction] = []
    if segment.next_offset <= start or not segment.size:
        return aborted
    position = segment.position_of(start) if start > segment.base_offset else 0
    for at, header in scan_headers(segment.open().file, position, segment.size):
        if header.producer_id < 0 or header.base_offset < start:
            continue
        if not header.is_control:
            table.update(header, header.base_offset)
            continue
        marker = _marker(segment, at, header)
        if marker is None:
            continue
        ended = table.ending(header.producer_id, header.base_offset)
        if ended is not None and not marker.commit:
            aborted.append(ended)
        table.end_transaction(header, marker)
    return aborted


def _marker(segment: Segment, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    try:
        return read_marker(segment.open().file.read_at(position, header.size), header)
    except CorruptRecord as error:
        raise CorruptLog(segment.path(LOG), position, str(error)) from error
