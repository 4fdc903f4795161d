from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lakelog.tables.registry.errors import UnreadableValueError, UnsupportedSchemaError
from lakelog.tables.registry.json_schema import JsonSchema
from lakelog.tables.typed.shapes import FIELDS_MAX, extended

TOWN = {"type": "object", "properties": {"town": {"type": "string"}}}
TOWN_TYPE = pa.struct([("town", pa.large_string())])


def column_types(schema: Any, **references: Any) -> dict[str, pa.DataType]:
    texts = {name: json.dumps(each) for name, each in references.items()}
    shape = JsonSchema(json.dumps(schema), texts).shape
    return {each.name: each.type for each in extended(pa.struct([]), shape)}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "boolean"}, pa.bool_()),
        ({"type": "integer"}, pa.int64()),
        ({"type": "number"}, pa.float64()),
        ({"type": ["integer", "number", "null"]}, pa.float64()),
        ({"type": "string", "format": "date-time"}, pa.large_string()),
        (TOWN, TOWN_TYPE),
        ({"properties": {"town": {"type": "string"}}}, TOWN_TYPE),
        (
            {"type": "array", "items": {"type": "integer"}},
            pa.large_list(pa.field("element", pa.int64())),
        ),
        ({"type": ["null", "string"]}, pa.large_string()),
        ({"oneOf": [{"type": "null"}, TOWN]}, TOWN_TYPE),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, pa.int64()),
        ({"$ref": "#/$defs/a~1b"}, TOWN_TYPE),
        ({"$ref": "town.json"}, TOWN_TYPE),
        ({"$ref": "town.json#/properties/town"}, pa.large_string()),
    ],
)
def test_each_type_has_a_column(schema: Any, expected: pa.DataType) -> None:
    root = {"type": "object", "properties": {"a": schema}, "$defs": {"a/b": TOWN}}
    assert column_types(root, **{"town.json": TOWN}) == {"a": expected}


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["integer", "string"]},
        {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        {"type": "array"},
        {"type": "object"},
        {"type": "object", "properties": []},
        {"$ref": "#/nowhere"},
        {"$ref": "missing.json"},
        {"$ref": "#/properties/a"},
    ],
)
def test_schemas_without_a_column(schema: Any) -> None:
    assert column_types({"type": "object", "properties": {"a": schema}}) == {}


def test_names_that_sql_would_quote_and_too_many_fields_have_no_column() -> None:
    properties = {"a b": {"type": "string"}, "c": {"type": "string"}}
    assert list(column_types({"properties": properties})) == ["c"]
    many = {f"f{number}": {"type": "string"} for number in range(3000)}
    assert len(column_types({"properties": many})) <= FIELDS_MAX


def test_values_are_read_and_the_rest_is_rescued() -> None:
    schema = JsonSchema(json.dumps(TOWN))
    read = schema.reader(extended(pa.struct([]), schema.shape))
    assert read(b'{"town": "Ulm", "more": 1}') == ({"town": "Ulm"}, {"$.more": 1})
    assert read(b"[1]") == (None, {"$": [1]})
    with pytest.raises(UnreadableValueError, match="it is not JSON"):
        read(b"Ulm")


@pytest.mark.parametrize("text", ["no JSON", "[" * 100_000])
def test_a_text_that_is_no_schema_is_named(text: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match="the JSON Schema cannot be parsed"):
        JsonSchema(text)
