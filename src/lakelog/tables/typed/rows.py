"""Adds the typed columns to rows of a topic, with fields that the first rows of a batch have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from lakelog.client.consumer.fetch import Batch, DamagedHeader
from lakelog.tables.iceberg.columns import DATA, RESCUED
from lakelog.tables.topic.errors import BadRecordError, DataLossError
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.topic.rows import ArrowRows
from lakelog.tables.typed.fitting import fitted, parsed
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


_UNKNOWN_MAX = 1000
"""Values whose unknown fields are collected, of one task."""


def untyped(schema: pa.Schema) -> pa.Schema:
    """Return the schema without the typed columns."""
    return pa.schema([field for field in schema if field.name not in (DATA, RESCUED)])


def data_type(schema: pa.Schema) -> pa.StructType:
    """Return the type of the column `data`, without fields if the schema lacks it."""
    return schema.field(DATA).type if DATA in schema.names else pa.struct([])


class Fitter(Protocol):
    """Converts values. unknown: the shapes of values that did not fit, for later batches."""

    @property
    def unknown(self) -> list[Shape]: ...

    def fit(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Return the columns `data` and `rescued` for the column `value` of a batch."""
        ...


class JsonFitter:
    """Converts JSON values for one type of the column `data`."""

    def __init__(self, type_: pa.StructType) -> None:
        self._type = type_
        self._left = _UNKNOWN_MAX
        self._unknown = Shape("struct")

    @property
    def unknown(self) -> list[Shape]:
        """The shape of values that did not fit, for the fields of later batches."""
        return [self._unknown]

    def fit(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Return the columns `data` and `rescued` for the column `value` of a batch."""
        values = batch.column("value")
        data, rescued = fitted(values.to_pylist(), self._type)
        if rescued.null_count < len(rescued):
            self._note_unknown(values, rescued)
        return data, rescued

    def _note_unknown(self, values: pa.Array, rescued: pa.Array) -> None:
        unknown = values.filter(rescued.is_valid())[: self._left]
        self._left -= len(unknown)
        for value in unknown:
            self._unknown.see(parsed(value.as_py()))


class TypedRows:
    """Completes record batches to a schema with typed columns; others pass unchanged.

    fitter: by default that for JSON.
    """

    def __init__(self, schema: pa.Schema, fitter: Fitter | None = None) -> None:
        self._schema = schema
        self._is_typed = RESCUED in schema.names
        self._fitter = fitter or JsonFitter(data_type(schema))

    @property
    def unknown(self) -> list[Shape]:
        """The shapes of values that did not fit."""
        return self._fitter.unknown

    def complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the columns of the schema. Raises the errors of the fitter."""
        if not self._is_typed:
            return batch
        data, rescued = self._fitter.fit(batch)
        columns = {DATA: data, RESCUED: rescued}
        arrays = [
            columns[name] if name in columns else batch.column(name) for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
