from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from lakelog.client.consumer.fetch import Batch
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.registry import schemas as module
from lakelog.tables.registry.client import (
    RegistryAddress,
    RegistryClient,
    SchemaMissingError,
    UnreadableValueError,
    UnsupportedSchemaError,
)
from lakelog.tables.registry.schemas import (
    JsonSchema,
    RegistryFitter,
    Schemas,
    registered_shapes,
    schemas_of,
)
from lakelog.tables.topic.errors import BadRecordError
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.typed.shapes import FIELDS_MAX, extended
from schema_registry import Registry
from unit.tables.registry.avro_values import record

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


V1 = record("long")
V2 = record("long", ["null", "string"])

Row = tuple[bytes | None, list[tuple[str, bytes]]]


@pytest.fixture
def serialize(registry: Registry) -> Callable[..., Row]:
    """Return a function that writes a value as confluent-kafka does, and its headers."""
    client = SchemaRegistryClient({"url": registry.url})

    def run(schema: Any, value: Any, *, in_header: bool = False) -> Row:
        id_serializer = header_schema_id_serializer if in_header else prefix_schema_id_serializer
        conf = {"schema.id.serializer": id_serializer}
        serializer = AvroSerializer(client, json.dumps(schema), conf=conf)
        headers: Any = []
        context = SerializationContext("orders", MessageField.VALUE, headers)
        found = serializer(value, context)
        assert found is None or isinstance(found, bytes)
        return found, headers

    return run


def batch(*rows: Row, with_headers: bool = True) -> pa.RecordBatch:
    found = [
        {
            "topic": "orders",
            "partition": 3,
            "offset": 40 + number,
            "value": value,
            "headers": [{"key": key, "value": each} for key, each in headers],
        }
        for number, (value, headers) in enumerate(rows)
    ]
    names = ["topic", "partition", "offset", "value"] + ["headers"] * with_headers
    return pa.RecordBatch.from_pylist(found, pa.schema([ARROW_SCHEMA.field(n) for n in names]))


def known(registry: Registry) -> Schemas:
    return Schemas(RegistryClient(RegistryAddress(registry.url)))


def fitter(schemas: Schemas, *schema_ids: int, is_strict: bool = True) -> RegistryFitter:
    type_ = pa.struct([])
    for each in schema_ids:
        type_ = extended(type_, schemas.get(each).shape)
    return RegistryFitter(schemas, type_, is_strict=is_strict, hint="Do this.")


def test_schemas_of_one_batch_share_the_columns(
    registry: Registry, serialize: Callable[..., Row]
) -> None:
    rows = [
        serialize(V1, {"f0": 1}),
        serialize(V2, {"f0": 2, "f1": "new"}),
        (None, []),
        serialize(V1, {"f0": 3}),
        serialize(V2, {"f0": 4, "f1": None}),
    ]
    schemas = known(registry)
    registry.requests.clear()
    fit = fitter(schemas, 1, 2)
    data, rescued = fit.fit(batch(*rows * 100))
    assert data.to_pylist()[:5] == [
        {"f0": 1, "f1": None},
        {"f0": 2, "f1": "new"},
        None,
        {"f0": 3, "f1": None},
        {"f0": 4, "f1": None},
    ]
    assert rescued.null_count == len(rescued) == 500
    fitter(schemas, 1, 2).fit(batch(*rows))
    assert registry.requests == ["/schemas/ids/1", "/schemas/ids/2"], "once for each id"
    assert fit.unknown == []


def test_ids_in_headers_are_found(registry: Registry, serialize: Callable[..., Row]) -> None:
    value, headers = serialize(V2, {"f0": 0, "f1": "x"}, in_header=True)
    assert value is not None
    assert value[0] == 0, "the value itself looks as if it began with an id"
    assert [key for key, _ in headers] == ["__value_schema_id"]
    data, _ = fitter(known(registry), 1).fit(batch((value, headers), serialize(V2, {"f0": 5})))
    assert data.to_pylist() == [{"f0": 0, "f1": "x"}, {"f0": 5, "f1": None}]


def test_a_guid_before_the_value_is_found(
    registry: Registry, serialize: Callable[..., Row]
) -> None:
    value, _ = serialize(V1, {"f0": 9})
    assert value is not None
    row: Row = (b"\1" + registry.guid(1).bytes + value[5:], [])
    data, _ = fitter(known(registry), 1).fit(batch(row, with_headers=False))
    assert data.to_pylist() == [{"f0": 9}]


def test_values_without_ids_are_of_one_version(
    registry: Registry, serialize: Callable[..., Row]
) -> None:
    registry.register("t-value", V1)
    in_header = serialize(V2, {"f0": 7, "f1": "x"}, in_header=True)
    schemas = known(registry)
    newest = schemas.newest("t-value")
    data = extended(pa.struct([]), schemas.get(newest).shape)
    fit = RegistryFitter(schemas, data, is_strict=True, hint="", without_ids=newest)
    found, rescued = fit.fit(batch((b"\0", []), (b"\x02", []), in_header))
    assert found.to_pylist() == [{"f0": 0}, {"f0": 1}, {"f0": 7}]
    assert rescued.to_pylist() == [None, None, '{"$.f1":"x"}']
    with pytest.raises(BadRecordError, match=r"orders-3@40: .*it has 4 bytes after"):
        fit.fit(batch((b"\0\0\0\0\1", [])))


def test_json_schemas_are_read_too(registry: Registry) -> None:
    registry.register("t", {"properties": {"f0": {"type": "integer"}}}, "JSON")
    data, rescued = fitter(known(registry), 1).fit(batch((b'\0\0\0\0\1{"f0": 1, "b": 2}', [])))
    assert data.to_pylist() == [{"f0": 1}]
    assert rescued.to_pylist() == ['{"$.b":2}']


def test_fields_that_the_columns_lack_are_rescued_and_known_afterwards(
    registry: Registry, serialize: Callable[..., Row]
) -> None:
    rows = [serialize(V1, {"f0": 1}), serialize(V2, {"f0": 2, "f1": "new"})]
    fit = fitter(known(registry), 1)
    data, rescued = fit.fit(batch(*rows))
    assert data.to_pylist() == [{"f0": 1}, {"f0": 2}]
    assert rescued.to_pylist() == [None, '{"$.f1":"new"}']
    (unknown,) = fit.unknown
    assert [each.name for each in extended(data.type, unknown)] == ["f0", "f1"]


UNREADABLE = [
    (b"plain", "begins with byte 112"),
    (b"", "the value is empty"),
    (b"\0\0\0\0\x63x", "does not have the schema id 99"),
    (b"\0\0\0\0\1", "its bytes do not fit the Avro schema"),
    (b"\0\0\0\0\1\2x", "it has 1 bytes after the value"),
    (b"\0\0\0\0\2x", "PROTOBUF, which is not supported"),
]


@pytest.mark.parametrize(("value", "reason"), UNREADABLE)
def test_a_value_that_cannot_be_read_is_an_error_with_its_place(
    registry: Registry, value: bytes, reason: str
) -> None:
    registry.register("t", V1)
    registry.register("t", "message X {}", "PROTOBUF")
    expected = rf"^orders-3@41: the value cannot be read: .*{reason}.*\. Do this\.$"
    with pytest.raises(BadRecordError, match=expected):
        fitter(known(registry), 1).fit(batch((b"\0\0\0\0\1\2", []), (value, [])))


@pytest.mark.parametrize(("value", "reason"), UNREADABLE)
def test_or_a_row_with_the_reason(registry: Registry, value: bytes, reason: str) -> None:
    registry.register("t", V1)
    registry.register("t", "message X {}", "PROTOBUF")
    fit = fitter(known(registry), 1, is_strict=False)
    data, rescued = fit.fit(batch((b"\0\0\0\0\1\2", []), (value, [])))
    assert data.to_pylist() == [{"f0": 1}, None]
    assert reason in json.loads(rescued[1].as_py())["$error"]
    assert fit.unknown == []


class Log:
    """A topic with these records."""

    def __init__(self, *rows: Row) -> None:
        self._rows = rows

    def batches(self, wanted: OffsetRange) -> Iterator[Batch]:
        builder = BatchBuilder()
        for value, headers in self._rows:
            builder.append(0, None, value, headers)
        data = builder.build(base_offset=wanted.start)
        yield read_header(data), memoryview(data)


def test_the_schemas_of_a_sample_are_known_before_the_batch(
    registry: Registry, serialize: Callable[..., Row]
) -> None:
    log = Log(
        (b"plain", []),
        (None, []),
        serialize(V1, {"f0": 1}),
        serialize(V2, {"f0": 1}, in_header=True),
        (b"\0\0\0\0\x63", []),
    )
    shapes = registered_shapes(known(registry), log, [OffsetRange("orders", 0, 0, 5)])
    assert [list(each.fields) for each in shapes] == [["f0"], ["f0", "f1"]]


def test_few_schemas_are_noted_for_later_batches(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SHAPES_MAX", 2)
    for name in ("a", "b", "c"):
        registry.register(name, record("long", name=name))
    rows: list[Row] = [(b"\0\0\0\0" + bytes([number, 2]), []) for number in (1, 2, 3)]
    fit = fitter(known(registry))
    _, rescued = fit.fit(batch(*rows))
    assert rescued.to_pylist() == ['{"$.f0":1}'] * 3
    assert len(fit.unknown) == 2
