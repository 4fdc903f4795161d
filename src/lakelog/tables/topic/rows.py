"""Record batches of a topic as rows of a table: Arrow record batches of one schema."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from lakelog.client.consumer.batches import Batch
from lakelog.columns.decoding.decode import ImpossibleTimestampError, decode_columns
from lakelog.columns.decoding.groups import column_types
from lakelog.records.batch import CorruptRecord
from lakelog.tables.topic.errors import BadRecordError
from lakelog.tables.topic.ranges import OffsetRange


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
