"""Values of confluent-kafka's serializers as columns."""

from __future__ import annotations

import json
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

from lakelog.client.consumer.batches import Batch
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.registry import values as module
from lakelog.tables.registry.client import RegistryAddress, RegistryClient
from lakelog.tables.registry.schemas import Schemas
from lakelog.tables.registry.values import RegistryFitter, registered_shapes
from lakelog.tables.topic.errors import BadRecordError
from lakelog.tables.topic.offsets import OffsetRange
from lakelog.tables.typed.shapes import extended
from schema_registry import Registry
from unit.tables.registry.avro_values import record

V1 = record("long")
V2 = record("long", ["null", "string"])

Row = tuple[bytes | None, list[tuple[str, bytes]]]


@pytest.fixture
def serialize(registry: Registry) -> Callable[..., Row]:
    """Return a function that writes a value as confluent-kafka does, and its headers."""
    client = SchemaRegistryClient({"url": registry.url})

    def run(schema: Any, value: Any, *, in_header: bool = False) -> Row:
        place = header_schema_id_serializer if in_header else prefix_schema_id_serializer
        conf = {"schema.id.serializer": place}
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
