from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
import pytest

from lakelog.tables.registry import schemas as module
from lakelog.tables.registry.client import (
    RegistryAddress,
    RegistryClient,
    SchemaMissingError,
    UnreadableValueError,
    UnsupportedSchemaError,
)
from lakelog.tables.registry.schemas import JsonSchema, Schemas, schemas_of
from lakelog.tables.typed.shapes import FIELDS_MAX, extended
from schema_registry import Registry

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "town", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "Address"}],
}


def schemas(registry: Registry) -> Schemas:
    return Schemas(RegistryClient(RegistryAddress(registry.url)))


def test_each_id_is_asked_once_in_a_process(registry: Registry) -> None:
    registry.register("t-value", ADDRESS)
    for _ in range(1000):
        known = schemas_of(RegistryAddress(registry.url))
        assert list(known.get(1).shape.fields) == ["town"]
    assert registry.requests == ["/schemas/ids/1"]


def test_unsupported_schemas_are_asked_once_too(registry: Registry) -> None:
    registry.register("t-value", 'syntax = "proto3";', "PROTOBUF")
    registry.register("t-value", "x", "THRIFT")
    registry.register("t-value", '{"type": "nothing"}')
    known = schemas(registry)
    for _ in range(2):
        with pytest.raises(UnsupportedSchemaError, match="PROTOBUF, which is not supported: dec"):
            known.get(1)
        with pytest.raises(UnsupportedSchemaError, match="type 'THRIFT' is not supported"):
            known.get(2)
        with pytest.raises(UnsupportedSchemaError, match="cannot be parsed"):
            known.get(3)
    assert len(registry.requests) == 3


def test_an_unknown_id_is_asked_again_after_a_while(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = schemas(registry)
    for _ in range(5):
        with pytest.raises(SchemaMissingError, match="schema id 1"):
            known.get(1)
    assert len(registry.requests) == 1, "hostile records must not be requests each"
    registry.register("t-value", '"long"')
    monkeypatch.setattr(module, "_MISSING_S", -1.0)
    with pytest.raises(SchemaMissingError):
        known.get(2)
    registry.register("t-value", '"string"')
    known.get(2)


def test_the_schemas_that_are_kept_are_limited(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SCHEMAS_MAX", 2)
    for name in ("a", "b", "c"):
        registry.register(name, {"type": "fixed", "name": name, "size": 1})
    known = schemas(registry)
    for number in (1, 2, 1, 3, 1, 2):
        known.get(number)
    assert [path[-1] for path in registry.requests] == ["1", "2", "3", "2"]


def test_references_are_resolved_at_any_depth(registry: Registry) -> None:
    registry.register("address", ADDRESS)
    to_address = [{"name": "Address", "subject": "address", "version": 1}]
    registry.register("order", ORDER, references=to_address)
    both = [*to_address, {"name": "Order", "subject": "order", "version": 1}]
    number = registry.register("t-value", '["Order", "Address"]', references=both)

    shape = schemas(registry).get(number).shape
    assert list(shape.fields) == ["Order", "Address"]
    assert list(shape.fields["Order"].fields["to"].fields) == ["town"]
    assert len(registry.requests) == 3


def test_references_in_a_circle_or_too_many_end(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_itself = [{"name": "Other", "subject": "t-value", "version": 1}]
    registry.register("t-value", ORDER, references=to_itself)
    with pytest.raises(UnsupportedSchemaError):
        schemas(registry).get(1)
    monkeypatch.setattr(module, "_REFERENCES_MAX", 0)
    with pytest.raises(UnsupportedSchemaError, match="more than 0 references"):
        schemas(registry).get(1)


def test_the_newest_version_of_a_subject_changes_but_no_version_does(registry: Registry) -> None:
    registry.register("t-value", ADDRESS)
    known = schemas(registry)
    first = known.newest("t-value")
    registry.register("t-value", {**ADDRESS, "fields": []})
    assert (first.version, known.newest("t-value").version) == (1, 2)
    registry.requests.clear()
    assert list(known.get(first).shape.fields) == list(known.get(first).shape.fields) == ["town"]
    assert registry.requests == ["/subjects/t-value/versions/1"]


def test_avro_without_fastavro_says_what_to_install(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "lakelog.tables.registry.avro", raising=False)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    registry.register("t-value", '{"type": "object"}', "JSON")
    registry.register("t-value", '"long"')
    known = schemas(registry)
    assert not known.get(1).shape.fields
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[avro\]'"):
        known.get(2)


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
