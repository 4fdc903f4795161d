"""Adds the typed columns to rows of a topic."""

from __future__ import annotations

import pyarrow as pa

from lakelog.tables.iceberg.columns import DATA, RESCUED
from lakelog.tables.typed.fitting import fitted, parsed
from lakelog.tables.typed.shapes import Shape

_UNKNOWN_MAX = 1000
"""Values whose unknown fields are collected, of one task."""


def untyped(schema: pa.Schema) -> pa.Schema:
    """Return the schema without the typed columns."""
    return pa.schema([each for each in schema if each.name not in (DATA, RESCUED)])


class TypedRows:
    """Completes record batches to a schema with typed columns; others pass unchanged.

    unknown: the shape of values that did not fit, for the fields of later batches.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._is_typed = RESCUED in schema.names
        self._type = schema.field(DATA).type if DATA in schema.names else pa.struct([])
        self._left = _UNKNOWN_MAX
        self.unknown = Shape("struct")

    def complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the columns of the schema."""
        if not self._is_typed:
            return batch
        data, rescued = fitted(batch.column("value").to_pylist(), self._type)
        if rescued.null_count < len(rescued):
            self._note_unknown(batch.column("value"), rescued)
        columns = {DATA: data, RESCUED: rescued}
        arrays = [
            columns[name] if name in columns else batch.column(name) for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _note_unknown(self, values: pa.Array, rescued: pa.Array) -> None:
        found = values.filter(rescued.is_valid())[: self._left]
        self._left -= len(found)
        for value in found:
            self.unknown.see(parsed(value.as_py()))
