"""A JSON Schema: its columns, and the reader of its values. No I/O.

Values are not validated: values that a column cannot have are rescued. References within
the schema and to schemas that the registry names are resolved, others make no column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from lakelog.tables.registry.errors import UnreadableValueError, UnsupportedSchemaError
from lakelog.tables.typed.fitting import Reader, Rescued, json_reader
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
