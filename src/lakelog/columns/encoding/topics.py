"""Rows of a table by topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakelog.base.errors import ErrorCode
from lakelog.columns.encoding.columns import (
    BadRowError,
    ColumnError,
    as_large_binary,
    as_lists,
    expanded,
    without_views,
)
from lakelog.columns.encoding.rows import check_names
from lakelog.columns.packages import optional

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC = "topic"


class TopicRows:
    """Rows of one topic, for `RowEncoder`."""

    def __init__(self, topic: str, table: pa.Table, numbers: pa.ChunkedArray | None) -> None:
        """numbers: the place of each row in the original table, if not all rows are here."""
        self.topic = topic
        self.table = table
        self._numbers = numbers

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """The rows as record batches of Arrow."""
        return list(self.table.to_batches())

    @contextmanager
    def original_rows(self) -> Iterator[None]:
        """Raise a `BadRowError` of the block with the row's number in the original table."""
        try:
            yield
        except BadRowError as error:
            if self._numbers is None:
                raise
            row = self._numbers[error.row].as_py()
            raise BadRowError(row, error.reason, error.code) from None

    def choose_partitions(self, choose: Callable[[bytes], int]) -> None:
        """Set the partition of each row that has a key and no partition."""
        import pyarrow as pa

        if "key" not in self.table.schema.names:
            return
        names = self.table.schema.names
        column = self.table.column("key")
        keys = [key for chunk in column.chunks for key in as_large_binary(chunk, "key").to_pylist()]
        given: list[Any] = [None] * len(keys)
        if "partition" in names:
            given = self.table.column("partition").to_pylist()
        chosen = [
            choose(key) if partition is None and key is not None else partition
            for key, partition in zip(keys, given, strict=True)
        ]
        rest = self.table.drop_columns(["partition"]) if "partition" in names else self.table
        self.table = rest.append_column("partition", pa.array(chosen, pa.int64()))


def as_table(rows: Any) -> pa.Table:
    """Return a table of Arrow: of a table, a record batch, or an object with Arrow's C interface.

    DataFrames of pandas and polars and relations of DuckDB have it. Raises `MissingPackageError`
    without pyarrow, `TypeError` for other objects, and `ColumnError` for columns of Python objects.
    """
    pa = optional("pyarrow", "arrow")
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if not hasattr(rows, "__arrow_c_stream__"):
        raise TypeError(
            f"{type(rows).__name__} is no table: expected a pyarrow.Table, or a DataFrame"
        )
    if type(rows).__module__.startswith("polars."):
        _check_objects(rows)
    return pa.table(rows)


def _check_objects(frame: Any) -> None:
    """Raise `ColumnError` for columns of the type Object: polars exports addresses for them."""
    for name, kind in zip(frame.columns, frame.dtypes, strict=True):
        if str(kind) == "Object":
            raise ColumnError(f"the column {name!r} has polars' type Object, which Arrow lacks")


def split_topics(table: pa.Table, topic: str | None) -> Iterable[TopicRows]:
    """Return the rows of each topic in the order of their first rows, without the column `topic`.

    topic: the topic of all rows, instead of the column. Raises `ColumnError` without either, and
    `BadRowError` for a row without a topic.
    """
    import pyarrow.compute as pc

    has_column = TOPIC in table.schema.names
    if topic is not None:
        return [TopicRows(topic, table.drop_columns([TOPIC]) if has_column else table, None)]
    if not has_column:
        raise ColumnError("the column 'topic' is missing, and no topic is given")
    names = _text(table.column(TOPIC))
    if names.null_count:
        row = pc.index(pc.is_null(names), True).as_py()
        raise BadRowError(row, "the topic is null", ErrorCode.INVALID_TOPIC_EXCEPTION)
    rest = table.drop_columns([TOPIC])
    unique = pc.unique(names).to_pylist()
    if len(unique) == 1:
        return [TopicRows(unique[0], rest, None)]
    check_names(rest.schema)
    rest = _takeable(rest)
    topics = []
    for name in unique:
        numbers = pc.indices_nonzero(pc.equal(names, name))
        topics.append(TopicRows(name, rest.take(numbers), numbers))
    return topics


def _takeable(table: pa.Table) -> pa.Table:
    """Return the table in layouts from which Arrow can take rows: neither runs nor views."""
    import pyarrow as pa

    layouts = [as_lists if name == "headers" else _takeable_column for name in table.schema.names]
    columns = [
        pa.chunked_array([layout(chunk) for chunk in column.chunks])
        for layout, column in zip(layouts, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, table.schema.names)


def _takeable_column(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_run_end_encoded(column.type):
        return without_views(column)
    # A dictionary, which keeps the value of each run once.
    numbers = pa.array(range(len(column.values)), pa.int32())
    runs = pa.RunEndEncodedArray.from_arrays(column.run_ends, numbers)
    rows = pc.run_end_decode(runs.slice(column.offset, len(column)))
    return pa.DictionaryArray.from_arrays(rows, without_views(column.values))


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    try:
        chunks = [without_views(expanded(chunk)) for chunk in column.chunks]
        return pa.chunked_array(chunks, None if chunks else column.type).cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ColumnError(f"the column 'topic' must be a string, not {column.type}") from None
