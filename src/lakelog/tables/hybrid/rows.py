"""Rows of data files as Arrow record batches of one schema, in the order of their offsets.

The files of a partitioned table may overlap from the first offset to the last. Rows are therefore
yielded as soon as no later row group can begin before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.tables.hybrid.archives import (
    ALL_NUMBERS,
    OFFSET_ID,
    PARTITION_ID,
    ArchivedFile,
    groups_by_offsets,
)
from lakelog.tables.iceberg.columns import DATA, RAW_TIMESTAMP, RESCUED, id_of, names_in
from lakelog.tables.iceberg.data_file import are_there, deleted_rows, open_input
from lakelog.tables.topic.errors import BadRecordError
from lakelog.tables.topic.offsets import OffsetRange

if TYPE_CHECKING:
    import pyarrow.parquet as pq


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


_IDS = {
    "topic": 1,
    "partition": PARTITION_ID,
    "offset": OFFSET_ID,
    "timestamp": 4,
    "timestampType": 5,
    "key": 6,
    "value": 7,
    "headers": 8,
}
"""The ids of the columns. Others have another id in each table and are found by name."""
_BY_NAME = (RAW_TIMESTAMP, DATA, RESCUED)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A row group of a file.

    names: of its columns in the file. position: of its first row in the file. deleted: positions of
    rows that delete files name.
    """

    path: str
    metadata: pq.FileMetaData
    number: int
    names: Mapping[str, str]
    offsets: tuple[int, int]
    position: int
    deleted: pa.Array | None


@dataclass(frozen=True, slots=True)
class ArchivedRows:
    """Reads rows of data files.

    schema: the columns of the result. catalog: PyIceberg's properties, for remote files.
    null_timestamps: whether a null timestamp is allowed. hint: the end of the error otherwise.
    """

    schema: pa.Schema
    catalog: Mapping[str, str]
    null_timestamps: bool
    hint: str

    def read(
        self, offset_range: OffsetRange, files: Sequence[ArchivedFile]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range in the order of their offsets, with the column `offset`.

        The column comes first, for the caller, which removes it. The row groups that overlap at one
        offset are in memory together: one of each partition of a partitioned table, all of a file
        that another program rewrote unsorted. Raises `FileNotFoundError` if a file was removed, and
        `BadRecordError`.
        """
        for group in groups_by_offsets([file for file in files if file.may_hold(offset_range)]):
            pieces = [piece for file in group for piece in self._pieces(offset_range, file)]
            pieces.sort(key=lambda p: p.offsets)
            starts = (RowGroup(p.offsets[0], self._rows(offset_range, p)) for p in pieces)
            yield from in_order(starts)

    def _pieces(self, part: OffsetRange, file: ArchivedFile) -> list[_Piece]:
        """Return the row groups of a file that may have rows of the range."""
        import pyarrow.parquet as pq  # each process of a query imports this module, few read files

        # Closed again before the next one: a table that was never compacted may have more files
        # than a process may open.
        with open_input(file.path, self.catalog) as source, pq.ParquetFile(source) as parquet:
            metadata, names = parquet.metadata, _names(parquet.schema_arrow)
        deleted = deleted_rows(file.path, file.deletes, self.catalog)
        pieces, position = [], 0
        for number in range(metadata.num_row_groups):
            partitions = _bounds(metadata, number, names["partition"])
            offsets = _bounds(metadata, number, names["offset"])
            if (
                partitions[0] <= part.partition <= partitions[1]
                and offsets[0] < part.end
                and offsets[1] >= part.start
            ):
                row_group = file.path, metadata, number
                pieces.append(_Piece(*row_group, names, offsets, position, deleted))
            position += metadata.row_group(number).num_rows
        return pieces

    def _rows(self, part: OffsetRange, piece: _Piece) -> Iterator[pa.RecordBatch]:
        names, position = piece.names, piece.position
        asked = {"partition", "offset", *self.schema.names} & names.keys()
        columns = [names[name] for name in asked]
        for batch in self._batches(piece, columns):
            offsets = batch.column(names["offset"])
            mask = pc.and_(
                pc.equal(batch.column(names["partition"]), part.partition),
                pc.and_(pc.greater_equal(offsets, part.start), pc.less(offsets, part.end)),
            )
            if piece.deleted is not None:
                mask = pc.and_(mask, are_there(piece.deleted, position, batch.num_rows))
            position += batch.num_rows
            kept = batch.filter(mask)
            if kept.num_rows:
                yield self._complete(part, kept, names)

    def _batches(self, piece: _Piece, columns: list[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        with (
            open_input(piece.path, self.catalog) as source,
            pq.ParquetFile(source, metadata=piece.metadata) as parquet,
        ):
            groups = [piece.number]
            yield from parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns)

    def _complete(
        self, part: OffsetRange, batch: pa.RecordBatch, names: Mapping[str, str]
    ) -> pa.RecordBatch:
        def column(field: pa.Field) -> pa.Array:
            if field.name == "topic":
                return pa.repeat(pa.scalar(part.topic, field.type), batch.num_rows)
            if field.name not in names:
                return pa.nulls(batch.num_rows, field.type)
            values = batch.column(names[field.name])
            if field.name == DATA:
                _check_names(values.type, field.type)
            return values.cast(field.type)

        offsets = batch.column(names["offset"]).cast(pa.int64())
        arrays = [column(field) for field in self.schema]
        if "timestamp" in self.schema.names and not self.null_timestamps:
            times = arrays[self.schema.names.index("timestamp")]
            if times.null_count:
                at = offsets.filter(pc.is_null(times))[0].as_py()
                raise BadRecordError(
                    f"{part.topic}-{part.partition}@{at}: the timestamp is not within the "
                    f"years 1 to 9999. {self.hint}"
                )
        schema = self.schema.insert(0, pa.field(POSITION, pa.int64(), nullable=False))
        return pa.RecordBatch.from_arrays([offsets, *arrays], schema=schema)


POSITION = "lakelog.position"
"""The column with the offset, which comes first in the batches of `ArchivedRows.read`."""


def _names(schema: pa.Schema) -> dict[str, str]:
    """Return the names that the columns have in a file."""
    mapped = {
        name: there for name, there in names_in(schema, _IDS).items() if there in schema.names
    }
    return {**{name: name for name in schema.names if name in _BY_NAME}, **mapped}


def _check_names(stored: pa.DataType, expected: pa.DataType) -> None:
    """Check that a cast by name is one by id. Raises `ValueError` for renamed fields."""
    ids = _paths_by_id(expected)
    for number, path in _paths_by_id(stored).items():
        if ids.get(number, path) != path:
            raise ValueError(
                f"another program has renamed the field {path!r} of the column {DATA!r} to "
                f"{ids[number]!r}: compact the table with that program"
            )


def _paths_by_id(type_: pa.DataType, path: str = "") -> dict[int, str]:
    fields: list[pa.Field] = []
    if pa.types.is_struct(type_):
        fields = list(type_)
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        fields = [type_.value_field]
    elif pa.types.is_map(type_):
        fields = [type_.item_field]
    paths = {}
    for field in fields:
        # Parquet's name for the elements of a list or map differs between writers.
        name = f"{path}.{field.name}" if pa.types.is_struct(type_) else f"{path}[]"
        number = id_of(field)
        if number is not None:
            paths[number] = name.removeprefix(".")
        paths |= _paths_by_id(field.type, name)
    return paths


def _bounds(metadata: pq.FileMetaData, number: int, name: str) -> tuple[int, int]:
    """Return the bounds of an integer column in a row group; all numbers without statistics."""
    group = metadata.row_group(number)
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == name:
            statistics = column.statistics
            if statistics is not None and statistics.has_min_max:
                return statistics.min, statistics.max
    return ALL_NUMBERS
