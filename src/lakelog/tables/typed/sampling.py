"""Reads the first JSON values of a batch, to infer their fields before the batch is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from lakelog.client.consumer.batches import Batch, DamagedHeader
from lakelog.tables.topic.errors import BadRecordError, DataLossError
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.topic.rows import ArrowRows
from lakelog.tables.typed.fitting import parsed
from lakelog.tables.typed.shapes import Shape, shape_of

_RANGES_MAX = 16
_SAMPLE_BYTES = 64 << 10
_VALUE = pa.schema([pa.field("value", pa.large_binary())])


class BatchSource(Protocol):
    """The part of `TopicClient` that reads batches."""

    def batches(self, offset_range: OffsetRange) -> Iterator[Batch]:
        """Yield the batches of a range. Raises `DataLossError` and `KafkaError`."""
        ...


def sampled_shape(source: BatchSource, ranges: Sequence[OffsetRange]) -> Shape:
    """Return the shape of the values in a sample. Raises `KafkaError`."""
    samples = sampled_rows(source, ranges, _VALUE)
    return shape_of(parsed(value) for rows in samples for value in rows.column(0).to_pylist())


def sampled_rows(
    source: BatchSource, ranges: Sequence[OffsetRange], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield about the first 64 KiB of each range, of the 16 largest ones, in columns of a schema.

    A range that is lost or damaged has no sample: the task that reads it reports that. Raises
    `KafkaError`.
    """
    largest = sorted(ranges, key=lambda part: part.size, reverse=True)[:_RANGES_MAX]
    for offset_range in largest:
        rows = ArrowRows(schema, null_timestamps=True, hint="")
        with suppress(DataLossError, BadRecordError):
            yield from rows.convert(offset_range, _first(source.batches(offset_range)))


def _first(batches: Iterable[Batch]) -> Iterator[Batch]:
    taken = 0
    for header, batch in batches:
        if not isinstance(header, DamagedHeader):
            yield header, batch
        taken += len(batch)
        if taken >= _SAMPLE_BYTES:
            return
