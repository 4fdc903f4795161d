"""The newest row of each key, by Arrow's functions. No I/O.

Rows of one partition are in the order of their offsets. If a key occurs in several partitions, the
newest rows of the partitions are compared by timestamp, then by partition. The timestamps within
one partition do not matter: producers set them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

ORDERED_BY = ("key", "partition", "offset", "timestamp")
"""The columns that decide which row is the newest. Keys are not null."""
_AT = "lakelog.at"
_LEAST = -(1 << 63)


def newest(rows: pa.Table) -> pa.Table:
    """Return the newest row of each key, in the order of the keys."""
    last = last_of_partitions(rows)
    if pc.count_distinct(last.column("partition")).as_py() > 1:
        last = last.take(_last(last, ["key"], ["timestamp", "partition", "offset"]))
    return by_key(last)


def last_of_partitions(rows: pa.Table) -> pa.Table:
    """Return the row with the greatest offset of each key and partition."""
    rows = rows.combine_chunks()  # rows of one chunk are taken several times faster
    return rows.take(_last(rows, ["key", "partition"], ["partition", "offset"]))


def by_key(rows: pa.Table) -> pa.Table:
    """Return the rows in the order of their keys."""
    rows = rows.combine_chunks()
    return rows.take(pc.sort_indices(rows, sort_keys=[("key", "ascending")]))


def _last(rows: pa.Table, keys: list[str], order: list[str]) -> pa.Array:
    """Return the positions of the last row of each group of `keys`, in this order of columns.

    A null, which is a timestamp outside of the table's years, is before all others.
    """
    numbers = {name: pc.fill_null(rows.column(name).cast(pa.int64()), _LEAST) for name in order}
    sort_keys = [(name, "ascending") for name in order]
    positions = pc.sort_indices(pa.table(numbers), sort_keys=sort_keys)
    ranks = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(positions)))
    ordered = rows.select(keys).take(positions).append_column(_AT, ranks)
    groups = ordered.group_by(keys).aggregate([(_AT, "max")])
    return positions.take(pc.subtract(groups.column(f"{_AT}_max"), 1))
