"""Adds the typed columns to rows of a topic."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from lakelog.tables.iceberg.columns import DATA, RESCUED
from lakelog.tables.typed.fitting import fitted, parsed
from lakelog.tables.typed.shapes import Shape

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
