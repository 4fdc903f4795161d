"""Record batches of a topic as rows of a table: Arrow record batches of one schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from lakelog.client.isolation import Batch
from lakelog.columns.decoding.decode import ImpossibleTimestampError, decode_columns
from lakelog.columns.decoding.groups import column_types
from lakelog.records.errors import CorruptRecord
from lakelog.tables.topic.errors import BadRecordError
from lakelog.tables.topic.ranges import OffsetRange


class ArrowRows:
    """Converts ranges into Arrow record batches of exactly one schema.

    Spark checks the names and types of a partition's first batch only and reads the others by
    position. Every batch is therefore built to the schema, without type inference. Columns outside
    of the schema are not decoded.

    schema: names are `topic`, `partition` and the names of `column_types`. null_timestamps: see
    `decode_columns`. way_on: how to read a topic with impossible timestamps, the end of that error.
    """

    def __init__(self, schema: pa.Schema, *, null_timestamps: bool, way_on: str) -> None:
        self._schema = schema
        self._way_on = way_on
        self._null_timestamps = null_timestamps
        self._decoded = [name for name in schema.names if name in column_types()] or ["offset"]

    def convert(self, wanted: OffsetRange, batches: Iterable[Batch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the range in batches of about 2 MiB.

        Raises `BadRecordError` for a damaged batch, and for a timestamp outside the years 1 to 9999
        unless timestamps may be null.
        """
        where = f"{wanted.topic}-{wanted.partition}"
        try:
            for decoded in decode_columns(
                batches,
                self._decoded,
                start=wanted.start,
                end=wanted.end,
                null_timestamps=self._null_timestamps,
            ):
                yield self._complete(wanted, decoded)
        except ImpossibleTimestampError as error:
            raise BadRecordError(
                f"{where}@{error.offset}: the timestamp {error.timestamp} (milliseconds) is not "
                f"within the years 1 to 9999. {self._way_on}"
            ) from None
        except CorruptRecord as error:
            raise BadRecordError(f"{where}: {error}") from None

    def _complete(self, wanted: OffsetRange, decoded: pa.RecordBatch) -> pa.RecordBatch:
        constants = {"topic": wanted.topic, "partition": wanted.partition}
        arrays = [
            pa.repeat(pa.scalar(constants[field.name], field.type), decoded.num_rows)
            if field.name in constants
            else decoded.column(field.name).cast(field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
