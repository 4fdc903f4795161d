"""Rows of overlapping row groups, in the order of their offsets.

The files of a partitioned table may overlap from the first offset to the last. Rows are
therefore yielded as soon as no later row group can begin before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

BATCH_ROWS = 1 << 16
_WAITING_BYTES = 64 << 20


class RowGroup(NamedTuple):
    """Batches whose first column has offsets from `start` on."""

    start: int
    batches: Iterable[pa.RecordBatch]


def in_order(
    groups: Iterable[RowGroup], waiting_bytes: int = _WAITING_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all groups by offset.

    groups: in the order of their starts. waiting_bytes: with more bytes in memory, rows before the
    next start are yielded. Memory is at most about twice that of the groups that overlap at one
    offset.
    """
    waiting: list[pa.RecordBatch] = []
    reached, size, size_max = -1, 0, waiting_bytes
    for group in groups:
        if group.start > reached:
            yield from _sorted(waiting)
            waiting, size = [], 0
        elif size > size_max:
            early, waiting = _divided(waiting, group.start)
            yield from _sorted(early)
            size = sum(batch.nbytes for batch in waiting)
            # Otherwise each of many groups with the same start would copy all groups before it.
            size_max = max(waiting_bytes, 2 * size)
        for batch in group.batches:
            waiting.append(batch)
            size += batch.nbytes
            reached = max(reached, pc.max(batch.column(0)).as_py())
    yield from _sorted(waiting)


def _divided(
    batches: list[pa.RecordBatch], offset: int
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Return the rows before an offset, and the others."""
    early, late = [], []
    for batch in batches:
        mask = pc.less(batch.column(0), offset)
        early.append(batch.filter(mask))
        late.append(batch.filter(pc.invert(mask)))
    return early, [batch for batch in late if batch.num_rows]


def _sorted(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if not batches:
        return
    table = pa.Table.from_batches(batches)
    offsets = table.column(0).combine_chunks()
    if not pc.all(pc.less(offsets[:-1], offsets[1:])).as_py():
        table = table.take(pc.sort_indices(offsets)).combine_chunks()
    yield from (batch for batch in table.to_batches(BATCH_ROWS) if batch.num_rows)
