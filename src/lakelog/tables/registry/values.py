"""Converts the values of record batches into the columns `data` and `rescued`, by their schemas.

A value that cannot be read is an error that names the record, or a row whose `rescued` has the
reason. The table has its bytes in any case, so such a record is no dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.registry.client import (
    VALUE_HEADER,
    SchemaId,
    SchemaMissingError,
    UnreadableValueError,
    header_in,
    split,
)
from lakelog.tables.registry.schemas import Schemas, SubjectVersion
from lakelog.tables.topic.errors import BadRecordError
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.typed.fitting import Reader, rescued_text
from lakelog.tables.typed.rows import BatchSource, sampled_rows
from lakelog.tables.typed.shapes import Shape

ERROR = "$error"
"""The key in `rescued` with the reason why a value cannot be read."""
UNREADABLE = (UnreadableValueError, SchemaMissingError)
_PLACE = ("topic", "partition", "offset")
_SHAPES_MAX = 100
_SAMPLED = pa.schema([ARROW_SCHEMA.field(name) for name in ("value", "headers")])


class RegistryFitter:
    """Converts values for one type of the column `data`.

    is_strict: a value that cannot be read is an error; otherwise `rescued` has the reason. header:
    the name of the record header with the id. hint: the end of that error. without_ids: the
    schema of values without an id in a header; by default each begins with its id. unknown: the
    shapes of schemas with fields that the type lacks, for later batches.
    """

    def __init__(
        self,
        schemas: Schemas,
        type_: pa.StructType,
        *,
        is_strict: bool,
        header: str = VALUE_HEADER,
        hint: str,
        without_ids: SubjectVersion | None = None,
    ) -> None:
        self._schemas = schemas
        self._type = type_
        self._is_strict = is_strict
        self._header = header
        self._hint = hint
        self._without_ids = without_ids
        self._readers: dict[SchemaId | SubjectVersion, Reader] = {}
        self._widening: dict[SchemaId | SubjectVersion, Shape] = {}

    @property
    def unknown(self) -> list[Shape]:
        """The shapes of schemas some of whose values did not fit."""
        return list(self._widening.values())

    def fit(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Return the columns `data` and `rescued` for the column `value` of a batch.

        batch: has `headers` if ids may be there; errors name `topic`, `partition` and `offset`.
        Raises `BadRecordError`, `RegistryUnavailableError` and `RegistryAccessError`.
        """
        headers = batch.column("headers") if "headers" in batch.schema.names else None
        ids = _header_values(headers, self._header, batch.num_rows)
        data, rescued = [], []
        for row, (value, header) in enumerate(zip(batch.column("value"), ids, strict=True)):
            raw = value.as_py()
            try:
                decoded, left = (None, None) if raw is None else self._read(raw, header)
            except UNREADABLE as error:
                if self._is_strict:
                    raise BadRecordError(
                        f"{_where(batch, row)}: the value cannot be read: {error}. {self._hint}"
                    ) from None
                decoded, left = None, json.dumps({ERROR: str(error)})
            data.append(decoded)
            rescued.append(left)
        return pa.array(data, self._type), pa.array(rescued, pa.large_string())

    def _read(self, value: bytes, header: bytes | None) -> tuple[object, str | None]:
        schema_id: SchemaId | SubjectVersion
        if self._without_ids is not None and header is None:
            schema_id, rest = self._without_ids, value
        else:
            schema_id, rest = split(value, header)
        decoded, rescued = self._reader(schema_id)(rest)
        if rescued and schema_id not in self._widening and len(self._widening) < _SHAPES_MAX:
            self._widening[schema_id] = self._schemas.get(schema_id).shape
        return decoded, rescued_text(rescued)

    def _reader(self, schema_id: SchemaId | SubjectVersion) -> Reader:
        if schema_id not in self._readers:
            self._readers[schema_id] = self._schemas.get(schema_id).reader(self._type)
        return self._readers[schema_id]


def _header_values(headers: pa.Array | None, name: str, rows: int) -> Iterator[bytes | None]:
    """Yield the value of the header of this name for each row; `None` for rows without."""
    if headers is not None and _occurs(headers, name):
        yield from (header_in(row_headers, name) for row_headers in headers.to_pylist())
    else:
        yield from (None for _ in range(rows))


def _where(batch: pa.RecordBatch, row: int) -> str:
    if not {*_PLACE} <= {*batch.schema.names}:
        return f"row {row} of a batch"
    topic, partition, offset = (batch.column(name)[row] for name in _PLACE)
    return f"{topic}-{partition}@{offset}"


def _occurs(headers: pa.Array, name: str) -> bool:
    # Few topics have such headers, and Python objects of all headers cost more than the values.
    keys = headers.flatten().field("key")
    return bool(pc.any(pc.equal(keys, name)).as_py())


def registered_shapes(
    schemas: Schemas, source: BatchSource, ranges: Sequence[OffsetRange]
) -> list[Shape]:
    """Return the shapes of the schemas that a sample of the ranges names.

    Values that cannot be read have none: the task that reads them reports them. Raises
    `RegistryUnavailableError`, `RegistryAccessError` and `KafkaError`.
    """
    shapes: dict[SchemaId, Shape] = {}
    for batch in sampled_rows(source, ranges, _SAMPLED):
        headers = _header_values(batch.column("headers"), VALUE_HEADER, batch.num_rows)
        for value, header in zip(batch.column("value").to_pylist(), headers, strict=True):
            with suppress(*UNREADABLE):
                schema_id, _ = split(value or b"", header)
                if schema_id not in shapes:
                    shapes[schema_id] = schemas.get(schema_id).shape
    return list(shapes.values())
