from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.tables.registry.avro import AvroSchema
from lakelog.tables.registry.errors import UnreadableValueError, UnsupportedSchemaError
from lakelog.tables.typed.shapes import extended
from unit.tables.registry.avro_values import encoded, record

ANY = record(
    "long",
    "string",
    {"type": "array", "items": ["null", "double"]},
    {"type": "map", "values": "bytes"},
    {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    {"type": "fixed", "name": "F", "size": 3},
    ["null", record("int", "boolean", name="Inner"), "string"],
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
)


def reader(schema: Any) -> Any:
    found = AvroSchema(json.dumps(schema))
    return found.reader(extended(pa.struct([]), found.shape))


def test_a_value_is_decoded() -> None:
    value = {"f0": 1, "f1": "ü"}
    schema = record("long", "string")
    assert reader(schema)(encoded(schema, value)) == (value, {})


def test_each_value_has_a_mapping_of_its_own_for_rescued_parts() -> None:
    read = AvroSchema('"long"').reader(pa.struct([]))
    assert [read(b"\x02"), read(b"\x04")] == [(None, {"$": 1}), (None, {"$": 2})]


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        (record("string"), b"\x08ab", "do not fit the Avro schema"),
        (record("string"), b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "do not fit"),
        (record("string"), b"\x02\xff", "do not fit the Avro schema .*utf-8"),
        (record("long"), b"\xff" * 3, "do not fit"),
        (record("double"), b"", "do not fit"),
        (record(["null", "long"]), b"\x09", "do not fit"),
        (record({"type": "array", "items": "int"}), b"\xfe\xff\xff\xff\xff\x01", "do not fit"),
        (record("long"), b"\2more", "it has 4 bytes after the value"),
    ],
)
def test_damaged_bytes_are_named(schema: Any, data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableValueError, match=reason):
        reader(schema)(data)


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        '"nothing"',
        '{"type": "record"}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Missing"}]}',
        '{"__fastavro_parsed__": true, "type": "record"}',
        '{"type": "fixed", "name": "F", "size": "many"}',
        "[" * 100_000,
        "3",
    ],
)
def test_a_text_that_is_no_schema_is_named(text: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match="the Avro schema"):
        AvroSchema(text)


@given(st.binary(max_size=60))
def test_hostile_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        value, rescued = READ_ANY(data)
    except UnreadableValueError:
        return
    pa.array([value], TYPE)
    json.dumps(rescued, allow_nan=False)


TYPE = extended(pa.struct([]), AvroSchema(json.dumps(ANY)).shape)
READ_ANY = AvroSchema(json.dumps(ANY)).reader(TYPE)
