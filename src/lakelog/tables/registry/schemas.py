"""The schemas that a process has asked the registry for.

A schema never changes under its id, so each id is asked once in a process. An id that the registry
does not know may be registered later: it is asked again after a while.

Values are not validated against a JSON Schema: values that a column cannot have are rescued.
References within the schema and to schemas that the registry names are resolved, others make no
column.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.registry.client import (
    VALUE_HEADER,
    Reference,
    Registered,
    RegistryAddress,
    RegistryClient,
    SchemaId,
    SchemaMissingError,
    UnreadableValueError,
    UnsupportedSchemaError,
    header_in,
    split,
)
from lakelog.tables.topic.errors import BadRecordError
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.typed.fitting import Reader, Rescued, json_reader, rescued_text
from lakelog.tables.typed.rows import BatchSource, sampled_rows
from lakelog.tables.typed.shapes import DEPTH_MAX, FIELDS_MAX, NAME, Shape

_KINDS = {"boolean": "boolean", "integer": "long", "number": "double", "string": "string"}


class JsonSchema:
    """A writer's schema.

    text: the schema. references: the texts of the schemas that it names, by their names there.
    Raises `UnsupportedSchemaError` if the schema is no JSON Schema.
    """

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        named = references or {}
        try:
            self._root = json.loads(text)
            self._documents = {name: json.loads(text) for name, text in named.items()}
        except (ValueError, RecursionError) as error:
            raise UnsupportedSchemaError(f"the JSON Schema cannot be parsed: {error}") from None

    @property
    def shape(self) -> Shape:
        """The columns of objects; no fields for other values."""
        shape = self._shape(self._root, self._root, DEPTH_MAX, [FIELDS_MAX])
        return shape if shape.kind == "struct" else Shape("struct")

    def reader(self, type_: pa.StructType) -> Reader:
        """Return the function that converts a value for a column of this type."""
        read_json = json_reader(type_)

        def read(data: bytes) -> tuple[Any, Rescued]:
            try:
                return read_json(data)
            except ValueError as error:
                raise UnreadableValueError(str(error)) from None

        return read

    def _shape(self, schema: Any, document: Any, depth: int, budget: list[int]) -> Shape:
        budget[0] -= 1
        if depth <= 0 or budget[0] < 0 or not isinstance(schema, dict):
            return Shape()
        if "$ref" in schema:
            target, document = self._target(str(schema["$ref"]), document)
            return self._shape(target, document, depth - 1, budget)
        for key in ("oneOf", "anyOf"):
            options = _without_null(schema.get(key))
            if options:
                # Several types make no column: their values are rescued.
                (only,) = options if len(options) == 1 else (None,)
                return self._shape(only, document, depth - 1, budget)
        return self._shape_of_type(schema, document, depth, budget)

    def _shape_of_type(
        self, schema: dict[str, Any], document: Any, depth: int, budget: list[int]
    ) -> Shape:
        kind = _type_of(schema)
        if kind == "object":
            properties = schema.get("properties")
            named = properties if isinstance(properties, dict) else {}
            fields = {
                name: self._shape(schema, document, depth - 1, budget)
                for name, schema in named.items()
                if NAME.fullmatch(name)
            }
            return Shape("struct", fields)
        if kind == "array":
            item = self._shape(schema.get("items"), document, depth - 1, budget)
            return Shape("list", element=item)
        return Shape(_KINDS.get(kind, ""))

    def _target(self, reference: str, document: Any) -> tuple[Any, Any]:
        """Return the target of a `$ref`, and the document with it."""
        name, _, pointer = reference.partition("#")
        if name:
            document = self._documents.get(name)
        target = document
        for part in filter(None, pointer.split("/")):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        return target, document


def _without_null(options: Any) -> list[Any]:
    if not isinstance(options, list):
        return []
    return [o for o in options if not (isinstance(o, dict) and o.get("type") == "null")]


def _type_of(schema: Mapping[str, Any]) -> str:
    """Return the only type other than null; empty for several."""
    kind = schema.get("type")
    kinds = [str(name) for name in (kind if isinstance(kind, list) else [kind]) if name != "null"]
    if set(kinds) == {"integer", "number"}:
        return "number"
    if kinds == ["None"]:
        return "object" if "properties" in schema else ""
    return kinds[0] if len(kinds) == 1 else ""


_SCHEMAS_MAX = 1000
_MISSING_S = 10.0
_REFERENCES_MAX = 100
_NO_PROTOBUF = (
    "the schema is of type PROTOBUF, which is not supported: decoding its messages needs a "
    "compiler for .proto files. Archive such a topic with table.value.format=none"
)
NEED_FASTAVRO = "Avro values need fastavro: pip install '.[avro]'"


class SubjectVersion(NamedTuple):
    """A version of a subject. As an id, its schema never changes."""

    subject: str
    version: int


_Key = SchemaId | SubjectVersion


class WriterSchema(Protocol):
    """The schema that a value was written with."""

    @property
    def shape(self) -> Shape:
        """The columns of its values."""
        ...

    def reader(self, type_: pa.StructType) -> Reader:
        """Return the function for a column; it raises `UnreadableValueError`."""
        ...


class Schemas:
    """The schemas of one registry, the least recently used of more than 1,000 forgotten."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._schemas: OrderedDict[_Key, WriterSchema | UnsupportedSchemaError] = OrderedDict()
        self._missing: OrderedDict[_Key, tuple[float, str]] = OrderedDict()

    def get(self, schema_id: _Key) -> WriterSchema:
        """Return the schema with this id, or of this version of a subject.

        Raises `UnsupportedSchemaError`, and as `RegistryClient`.
        """
        if schema_id not in self._schemas:
            self._add(schema_id)
        self._schemas.move_to_end(schema_id)
        schema = self._schemas[schema_id]
        if isinstance(schema, UnsupportedSchemaError):
            raise UnsupportedSchemaError(str(schema))
        return schema

    def newest(self, subject: str) -> SubjectVersion:
        """Return the newest version of a subject now. Raises as `RegistryClient`."""
        return SubjectVersion(subject, self._client.newest(subject))

    def _asked(self, schema_id: _Key) -> Registered:
        if isinstance(schema_id, SubjectVersion):
            return self._client.version(*schema_id)
        return self._client.schema(schema_id)

    def _add(self, schema_id: _Key) -> None:
        until, reason = self._missing.get(schema_id, (0.0, ""))
        if reason and time.monotonic() < until:
            raise SchemaMissingError(reason)
        schema: WriterSchema | UnsupportedSchemaError
        try:
            schema = self._parsed(self._asked(schema_id))
        except SchemaMissingError as missing:
            self._missing[schema_id] = time.monotonic() + _MISSING_S, str(missing)
            _forget(self._missing)
            raise
        except UnsupportedSchemaError as unsupported:
            schema = UnsupportedSchemaError(str(unsupported))  # without its traceback
        self._missing.pop(schema_id, None)
        self._schemas[schema_id] = schema
        _forget(self._schemas)

    def _parsed(self, registered: Registered) -> WriterSchema:
        if registered.kind == "PROTOBUF":
            raise UnsupportedSchemaError(_NO_PROTOBUF)
        if registered.kind not in ("AVRO", "JSON"):
            raise UnsupportedSchemaError(f"the schema type {registered.kind!r} is not supported")
        references = self._references(registered)
        if registered.kind == "JSON":
            return JsonSchema(registered.text, references)
        try:
            from lakelog.tables.registry.avro import AvroSchema
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(NEED_FASTAVRO) from error
        return AvroSchema(registered.text, tuple(references.values()))

    def _references(self, registered: Registered) -> dict[str, str]:
        """Return the schemas that a schema names, by name, each after its own references."""
        texts: dict[str, str] = {}
        self._collect(registered.references, texts, set())
        return texts

    def _collect(
        self, references: tuple[Reference, ...], texts: dict[str, str], seen: set[Reference]
    ) -> None:
        for reference in references:
            if reference in seen or reference.name in texts:
                continue
            seen.add(reference)
            if len(seen) > _REFERENCES_MAX:
                raise UnsupportedSchemaError(f"it has more than {_REFERENCES_MAX} references")
            registered = self._client.version(reference.subject, reference.version)
            self._collect(registered.references, texts, seen)
            texts[reference.name] = registered.text


def _forget(entries: OrderedDict[_Key, Any]) -> None:
    while len(entries) > _SCHEMAS_MAX:
        entries.popitem(last=False)


@lru_cache(maxsize=8)
def schemas_of(address: RegistryAddress) -> Schemas:
    """Return the schemas of a registry that this process has in common."""
    return Schemas(RegistryClient(address))


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
