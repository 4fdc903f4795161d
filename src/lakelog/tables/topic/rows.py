"""Rows of a table out of the record batches of a topic, as Arrow record batches of one schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from lakelog.client.isolation import Batch
from lakelog.records.errors import CorruptRecord
from lakelog.tables.decoding.decode import ImpossibleTimestampError, decode_columns
from lakelog.tables.decoding.groups import column_types
from lakelog.tables.topic.errors import BadRecordError
from lakelog.tables.topic.ranges import OffsetRange


class ArrowRows:
    """Makes Arrow record batches of exactly one schema, whose names are the source's columns.

    Spark checks names and types of a partition's first batch only and reads the others by
    position, so each batch is built to the schema and nothing is left to inference. Only the
    columns of the schema are decoded. null_timestamps: see `decode_columns`; way_on: the end of the
    error about an impossible timestamp without it.
    """

    def __init__(self, schema: pa.Schema, *, null_timestamps: bool, way_on: str) -> None:
        self._schema = schema
        self._way_on = way_on
        self._null_timestamps = null_timestamps
        self._decoded = [name for name in schema.names if name in column_types()] or ["offset"]

    def convert(self, wanted: OffsetRange, batches: Iterable[Batch]) -> Iterator[pa.RecordBatch]:
        """The records of the range in batches of about 8 MiB.

        Raises `BadRecordError` for a batch that is damaged, and for a timestamp that cannot be
        represented unless that is allowed.
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
