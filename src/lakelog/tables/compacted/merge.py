"""Merges new rows of a bucket with its present file, in the order of the keys.

The present rows pass through memory one row group at a time; the new rows are in memory together. A
new row with a null value is a tombstone: the key has no row afterwards.

`newest` keeps the newest row of each key by Arrow's functions, without I/O. Rows of one partition
are in the order of their offsets. If a key occurs in several partitions, the newest rows of the
partitions are compared by timestamp, then by partition. The timestamps within one partition do not
matter: producers set them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelog.tables.archive.task_files import RowFiles
from lakelog.tables.iceberg.data_file import open_input

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


_BATCH_BYTES = 32 << 20
_IS_NEW = "lakelog.is_new"


@dataclass(frozen=True, slots=True)
class BucketMerge:
    """The merge of one bucket.

    present: the paths of its files. schema: of the table's files. catalog: PyIceberg's properties,
    for remote files.
    """

    present: Sequence[str]
    schema: pa.Schema
    catalog: Mapping[str, str]

    def winners(self, rows: pa.Table) -> pa.Table:
        """Return the rows that change the bucket: newest of their keys, also in the table.

        A tombstone of a key without a row changes nothing. Raises `FileNotFoundError` and
        `OSError`.
        """
        new = newest(rows)
        keys = new.column("key").combine_chunks()
        matching = [
            part.filter(pc.is_in(part.column("key"), value_set=keys))
            for part in self.rows(list(ORDERED_BY))
        ]
        columns = new.select(list(ORDERED_BY))
        current = pa.concat_tables([columns.slice(0, 0).cast(_narrow(self.schema)), *matching])
        both = pa.concat_tables(
            [
                columns.cast(current.schema).append_column(_IS_NEW, _repeated(True, new.num_rows)),
                current.append_column(_IS_NEW, _repeated(False, current.num_rows)),
            ]
        )
        best = newest(both)
        won = best.filter(best.column(_IS_NEW)).column("key").combine_chunks()
        new = new.filter(pc.is_in(new.column("key"), value_set=won))
        has_row = pc.is_in(new.column("key"), value_set=current.column("key").combine_chunks())
        return new.filter(pc.or_(pc.is_valid(new.column("value")), has_row))

    def write(self, winners: pa.Table, path: str) -> tuple[str, ...]:
        """Write the bucket's rows; return the path, or nothing if no row is left.

        winners: as `winners` returns them. Raises `OSError`; no file remains then.
        """
        files = RowFiles(path, self.schema, self.catalog)
        try:
            for rows in self._merged(winners):
                step = max(1, rows.num_rows * _BATCH_BYTES // max(1, rows.nbytes))
                for batch in rows.combine_chunks().to_batches(step):
                    files.add(batch)
            return files.close()
        except BaseException:
            files.remove()
            raise

    def _merged(self, winners: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows in the order of their keys, if the present file has this order."""
        replaced = winners.column("key").combine_chunks()
        live = fitted(winners.filter(pc.is_valid(winners.column("value"))), self.schema)
        for part in self.rows(self.schema.names):
            last = part.column("key")[-1]
            count = pc.sum(pc.less_equal(live.column("key"), last)).as_py() or 0
            kept = part.filter(pc.invert(pc.is_in(part.column("key"), value_set=replaced)))
            yield by_key(pa.concat_tables([kept, live.slice(0, count)]))
            live = live.slice(count)
        yield live

    def rows(self, names: list[str]) -> Iterator[pa.Table]:
        """Yield the row groups of the present files."""
        schema = pa.schema([self.schema.field(name) for name in names])
        for path in self.present:
            with open_input(path, self.catalog) as source, pq.ParquetFile(source) as file:
                has = [name for name in names if name in file.schema_arrow.names]
                for number in range(file.num_row_groups):
                    rows = file.read_row_group(number, columns=has)
                    if rows.num_rows:
                        yield fitted(rows, schema)


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of a schema; nulls for columns that they lack."""
    arrays = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _narrow(schema: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field(name) for name in ORDERED_BY])


def _repeated(value: bool, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), count)
