"""Ranges of a topic as rows of a table: Arrow record batches of one schema.

Retention and DeleteRecords remove the start of a range, a crash may cut off its end, and the topic
may be deleted. The caller decides how to handle a loss.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from lakelog.client.consumer.fetch import Batch
from lakelog.columns.decoding.decode import ImpossibleTimestampError, decode_columns
from lakelog.columns.decoding.groups import column_types
from lakelog.records.batch import CorruptRecord
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import (
    BadRecordError,
    DataLossError,
    LogReplacedError,
    OptionError,
    RecordsRemovedError,
    TopicGoneError,
    TopicMissingError,
)
from lakelog.tables.topic.offsets import OffsetRange


class ArrowRows:
    """Converts ranges into Arrow record batches of exactly one schema.

    Spark checks the names and types of a partition's first batch only and reads the others by
    position. Every batch is therefore built to the schema, without type inference. Columns outside
    of the schema are not decoded.

    schema: names are `topic`, `partition` and the names of `column_types`. null_timestamps: see
    `decode_columns`. hint: how to read a topic with impossible timestamps, the end of that error.
    """

    def __init__(self, schema: pa.Schema, *, null_timestamps: bool, hint: str) -> None:
        self._schema = schema
        self._hint = hint
        self._null_timestamps = null_timestamps
        self._decoded = [name for name in schema.names if name in column_types()] or ["offset"]

    def convert(
        self, offset_range: OffsetRange, batches: Iterable[Batch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of the range in batches of about 2 MiB.

        Raises `BadRecordError` for a damaged batch, and for a timestamp outside the years 1 to 9999
        unless timestamps may be null.
        """
        where = f"{offset_range.topic}-{offset_range.partition}"
        try:
            for decoded in decode_columns(
                batches,
                self._decoded,
                start=offset_range.start,
                end=offset_range.end,
                null_timestamps=self._null_timestamps,
            ):
                yield self._complete(offset_range, decoded)
        except ImpossibleTimestampError as error:
            raise BadRecordError(
                f"{where}@{error.offset}: the timestamp {error.timestamp} (milliseconds) is not "
                f"within the years 1 to 9999. {self._hint}"
            ) from None
        except CorruptRecord as error:
            raise BadRecordError(f"{where}: {error}") from None

    def _complete(self, offset_range: OffsetRange, decoded: pa.RecordBatch) -> pa.RecordBatch:
        rows = decoded.num_rows
        arrays = []
        for field in self._schema:
            if field.name == "topic":
                column = _texts(offset_range.topic, _power_of_2(rows)).slice(0, rows)
            elif field.name == "partition":
                column = _numbers(offset_range.partition, _power_of_2(rows)).slice(0, rows)
            else:
                column = decoded.column(field.name)
            arrays.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


# `pa.scalar` and `pa.repeat` would import pandas, if it is installed, into each of Spark's workers.
# Batches of a similar size share a column, of which they have a slice.


def _power_of_2(rows: int) -> int:
    """Return a number of rows that serves batches of `rows` as well."""
    return 1 << (rows - 1).bit_length()


@lru_cache(maxsize=4)
def _texts(text: str, rows: int) -> pa.Array:
    data = text.encode()
    ends = array("i", range(0, rows * len(data) + 1, len(data)))
    return pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(data * rows))


@lru_cache(maxsize=4)
def _numbers(number: int, rows: int) -> pa.Array:
    numbers = array("i", [number]) * rows
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(numbers)], 0)


OnLoss = Callable[[OffsetRange, DataLossError], None]
"""The decision about offsets that are lost. It raises an error, or returns to skip them.

Its second argument is the reason: a `RecordsRemovedError`, `LogReplacedError` or `TopicGoneError`.
"""


class Reading:
    """A range that is read to its end, except for offsets that `on_loss` skips.

    `batches` ends at a loss. `find_remaining` then determines which offsets can still be read, so
    callers alternate between the two.
    """

    def __init__(self, client: TopicClient, offset_range: OffsetRange, on_loss: OnLoss) -> None:
        self._client = client
        self._on_loss = on_loss
        self._unexplained: DataLossError | None = None
        self.remaining = offset_range

    def find_remaining(self) -> bool:
        """Reduce `remaining` to the offsets that the log holds; return whether there are any.

        Raises the errors of `on_loss`, `OptionError` if an open transaction blocks the range, and
        the error that ended `batches` if the log does not explain it.
        """
        left = self.remaining
        if left.size <= 0:
            return False
        try:
            kept = self._kept(left)
        except (TopicGoneError, TopicMissingError) as error:
            self._on_loss(left, TopicGoneError(f"{left}: {error}"))
            return False
        if self._unexplained is not None and kept == left:
            raise self._unexplained
        self.remaining = kept
        return kept.size > 0

    def batches(self) -> Iterator[Batch]:
        """Yield the batches of `remaining`; advance `remaining` past them.

        Raises the errors of `on_loss`, and `KafkaError`; a loss without explanation is kept for
        `find_remaining`.
        """
        self._unexplained = None
        left = self.remaining
        position = left.start
        try:
            for header, batch in self._client.batches(left):
                yield header, batch
                # After the yield: a batch counts as read when the caller asks for the next one.
                position = min(header.last_offset + 1, left.end)
            position = left.end
        except (TopicGoneError, LogReplacedError) as error:
            self._on_loss(replace(left, start=position), error)
            position = left.end
        except DataLossError as error:
            self._unexplained = error
        self.remaining = replace(left, start=position)

    def _kept(self, left: OffsetRange) -> OffsetRange:
        """Return the part of `left` that the log holds, if `on_loss` skips the rest."""
        meta = self._client.describe([left.topic])[left.topic]
        if left.topic_id and meta.topic_id != left.topic_id:
            raise TopicGoneError("the topic was deleted and created again")
        partition = (left.topic, left.partition)
        # The id is checked first: offsets of another topic of this name mean nothing.
        log_start = self._client.earliest([partition])[partition]
        log_end = self._readable_end(left)
        start = min(max(log_start, left.start), left.end)
        end = max(min(log_end, left.end), start)
        if left.start < start:
            text = f"{left}: the log holds only [{log_start}, {log_end})"
            self._on_loss(replace(left, end=start), RecordsRemovedError(text))
        if end < left.end:
            was_there = left.leader_epoch >= 0
            what = "was cut and ends" if was_there else "ends"
            error = LogReplacedError(f"{left}: the log {what} at {log_end}")
            self._on_loss(replace(left, start=end), error)
        return replace(left, start=start, end=end)

    def _readable_end(self, left: OffsetRange) -> int:
        """Return the end of the readable part, or the end of the log if the log ends first.

        Raises `OptionError` if an open transaction begins within the range.
        """
        partition = (left.topic, left.partition)
        readable_end = self._client.latest([partition])[partition]
        if readable_end >= left.end:
            return readable_end
        log_end = self._client.log_end([partition])[partition]
        if log_end >= left.end:
            raise OptionError(
                f"{left}: the transaction at offset {readable_end} is still open. Retry after it "
                "has ended, or set the option kafka.isolation.level=read_uncommitted"
            )
        return log_end
