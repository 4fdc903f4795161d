"""Fetched batches of one partition as columns of Arrow. No I/O.

The columns have the names and types of Spark's Kafka source, so that tables from here, from the
Spark source and from an archive fit together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode
from lakelog.client.consumer.fetch import Batch
from lakelog.client.errors import ClientError
from lakelog.client.offsets import TopicPartition
from lakelog.columns.decoding.decode import ImpossibleTimestampError, decode_columns
from lakelog.columns.decoding.groups import column_types
from lakelog.columns.packages import optional
from lakelog.records.batch import CorruptRecord

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The columns of a poll, unless it names others. `rawTimestamp` is the only further one."""


@dataclass(slots=True, frozen=True)
class Projection:
    """The columns that a poll returns; other columns are not decoded.

    null_timestamps: return null for a timestamp outside the years 1 to 9999 instead of raising an
    error; `rawTimestamp` has its milliseconds.
    """

    columns: tuple[str, ...]
    null_timestamps: bool

    @property
    def schema(self) -> pa.Schema:
        """The types of the columns."""
        import pyarrow as pa

        return pa.schema([(name, _types()[name]) for name in self.columns])

    def table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        """Return the batches as one table."""
        import pyarrow as pa

        return pa.Table.from_batches(batches, self.schema)

    @property
    def decoded(self) -> list[str]:
        """The columns that are decoded; positions need the offset."""
        return [name for name in column_types() if name in {*self.columns, "offset"}]


def wanted_columns(columns: Iterable[str] | None, *, null_timestamps: bool) -> Projection:
    """Return the columns, by default all.

    Raises `ValueError` for unknown columns, and `MissingPackageError` without pyarrow.
    """
    optional("pyarrow", "arrow")
    names = COLUMNS if columns is None else tuple(columns)
    if columns is None and null_timestamps:
        names = (*names, "rawTimestamp")
    for name in names:
        if name not in _types() or names.count(name) > 1:
            expected = ", ".join(_types())
            raise ValueError(f"column {name!r} is unknown or repeated; expected some of {expected}")
    if not names:
        raise ValueError("columns must name at least one column")
    return Projection(names, null_timestamps)


@cache
def _types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {**column_types(), "topic": pa.string(), "partition": pa.int32()}


class Chunk:
    """Fetched batches that are being decoded, and the decoded rows that were not returned yet.

    The batches stay until all their rows are returned, so that the rest can be decoded again with
    other columns.
    """

    def __init__(
        self,
        key: TopicPartition,
        projection: Projection,
        batches: list[Batch],
        start: int,
        max_bytes: int,
        *,
        end: int | None = None,
    ) -> None:
        """start, end: the offsets of the rows to return, by default all from `start` on.

        max_bytes: the limit of one batch, see `decode_columns`.
        """
        assert batches, "a chunk has rows to decode"
        self.key = key
        self.projection = projection
        self.batches = batches
        self.is_cut = end is not None
        self.end = batches[-1][0].last_offset + 1 if end is None else end
        self._max_bytes = max_bytes
        self._rows = self._decode(start, self.end)
        self._left: deque[pa.RecordBatch] = deque()
        self._failure: ClientError | None = None

    @property
    def is_done(self) -> bool:
        """Whether all rows were returned. Decodes the next rows, if necessary, to find out."""
        if not self._left and self._failure is None:
            try:
                batch = self._next()
            except ClientError as error:
                self._failure = error
                return False
            if batch is None:
                return True
            self._left.append(batch)
        return False

    def take(self, count: int, max_bytes: int) -> pa.RecordBatch | None:
        """Return the next rows: at most `count`, of about `max_bytes`, at least one.

        Return `None` after the last one. Raises `ClientError` for a damaged batch and for a
        timestamp outside the years 1 to 9999; if the chunk has several batches, it may be another
        batch than the first.
        """
        assert count > 0, "the caller wants rows"
        if self.is_done:
            return None
        if self._failure is not None:
            raise self._failure
        rows = self._left.popleft()
        fitting = min(count, max(1, rows.num_rows * max_bytes // max(rows.nbytes, 1)))
        if fitting < rows.num_rows:
            self._left.append(rows.slice(fitting))
            rows = rows.slice(0, fitting)
        return rows

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, which is in the chunk."""
        heads = (header for header, _ in self.batches)
        return next(head.partition_leader_epoch for head in heads if head.last_offset >= offset)

    def complete(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns of the schema, in its order."""
        import pyarrow as pa

        topic, partition = self.key
        constants = {"topic": topic, "partition": partition}
        schema = self.projection.schema
        arrays = [
            pa.repeat(pa.scalar(constants[field.name], field.type), rows.num_rows)
            if field.name in constants
            else rows.column(field.name)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _decode(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        return decode_columns(
            self.batches,
            self.projection.decoded,
            start=start,
            end=end,
            null_timestamps=self.projection.null_timestamps,
            max_bytes=self._max_bytes,
        )

    def _next(self) -> pa.RecordBatch | None:
        topic, partition = self.key
        try:
            return next(self._rows, None)
        except CorruptRecord as error:
            header = self.batches[0][0]
            first, last = header.base_offset, header.last_offset
            text = (
                f"{topic}-{partition}, batch at offsets {first} to {last}: {error}; "
                f"the next batch begins at {last + 1}"
            )
            raise ClientError(ErrorCode.CORRUPT_MESSAGE, text) from error
        except ImpossibleTimestampError as error:
            raise UnreadableTimestampError(topic, partition, error) from error


class UnreadableTimestampError(ClientError):
    """The record at `offset` has a timestamp that the column cannot represent."""

    def __init__(self, topic: str, partition: int, error: ImpossibleTimestampError) -> None:
        text = (
            f"{topic}-{partition}@{error.offset}: the timestamp {error.timestamp} (milliseconds) "
            "is not within the years 1 to 9999"
        )
        hint = (
            "Poll with null_timestamps=True, or without the column timestamp, or seek to "
            f"{error.offset + 1}."
        )
        super().__init__(ErrorCode.INVALID_TIMESTAMP, text, hint=hint)
        self.offset = error.offset
