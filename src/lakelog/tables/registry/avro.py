"""An Avro schema: its columns, and the decoder of its values. Importing this module needs fastavro.

fastavro checks no depth and no counts; `resolved` refuses the schemas for which that matters.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from lakelog.tables.registry.avro_fitting import fit_avro
from lakelog.tables.registry.avro_types import resolved
from lakelog.tables.registry.errors import UnreadableValueError, UnsupportedSchemaError
from lakelog.tables.typed.fitting import Reader, Rescued
from lakelog.tables.typed.shapes import Shape

_BAD_BYTES = (EOFError, LookupError, ValueError, ArithmeticError, struct.error)
_ROOT, _FIELD = "lakelog_root", "value"


class AvroSchema:
    """A writer's schema.

    text: the schema. references: the texts of the schemas that it names, each after its own
    references. Raises `UnsupportedSchemaError` if the text is no Avro schema, or its values
    cannot be columns.
    """

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        try:
            schemas = [_plain_keys(json.loads(each)) for each in (*references, text)]
            # A record without logical types: the values of its field have the same bytes.
            self._decoded = _parsed([_without_logical(each) for each in schemas], {})
            named: dict[str, Any] = {}
            root = _parsed(schemas, named)
            self._type = resolved(root["fields"][0]["type"], named)
        except (SchemaParseException, UnknownType, ValueError, LookupError, TypeError) as error:
            raise UnsupportedSchemaError(f"the Avro schema cannot be parsed: {error}") from None
        except RecursionError:
            raise UnsupportedSchemaError("the Avro schema has too many levels") from None

    @property
    def shape(self) -> Shape:
        """The columns of records; no fields for other values."""
        found = self._type.shape()
        return found if found.kind == "struct" else Shape("struct")

    def reader(self, type_: pa.StructType) -> Reader:
        """Return the function that decodes a value for a column of this type."""
        fit = fit_avro(self._type, type_)

        def read(data: bytes) -> tuple[Any, Rescued]:
            rescued = Rescued()
            return fit(self._decode(data), "$", rescued), rescued

        return read

    def _decode(self, data: bytes) -> Any:
        source = io.BytesIO(data)
        try:
            found: Any = schemaless_reader(source, self._decoded, return_named_type=True)
        except _BAD_BYTES as error:
            detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise UnreadableValueError(f"its bytes do not fit the Avro schema ({detail})") from None
        left = len(data) - source.tell()
        if left:
            raise UnreadableValueError(f"it has {left} bytes after the value of its Avro schema")
        return found[_FIELD]


def _parsed(schemas: Sequence[Any], named: dict[str, Any]) -> Any:
    """Return the parsed record with the last schema; `named` gets all definitions."""
    *references, last = schemas
    for each in references:
        parse_schema(each, named)
    root = {"type": "record", "name": _ROOT, "fields": [{"name": _FIELD, "type": last}]}
    return parse_schema(root, named)


def _plain_keys(schema: Any) -> Any:
    """Return the schema without keys by which fastavro marks schemas that it has parsed."""
    if isinstance(schema, dict):
        return {k: _plain_keys(v) for k, v in schema.items() if not k.startswith("__")}
    return [_plain_keys(each) for each in schema] if isinstance(schema, list) else schema


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {k: _without_logical(v) for k, v in schema.items() if k != "logicalType"}
    return [_without_logical(each) for each in schema] if isinstance(schema, list) else schema
