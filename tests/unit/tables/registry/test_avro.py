"""Avro values in columns, and what does not fit them."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.tables.registry.avro import AvroSchema
from lakelog.tables.registry.client import UnreadableValueError, UnsupportedSchemaError
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


def columns(schema: Any, value: Any, type_: pa.DataType | None = None) -> tuple[Any, Any]:
    """Write the value as the only field of a record, and read it: the column, and the rest.

    type_: of the column; by default the one of the schema.
    """
    known = AvroSchema(json.dumps(record(schema)))
    data = extended(pa.struct([]), known.shape) if type_ is None else pa.struct([("f0", type_)])
    found, rescued = known.reader(data)(encoded(record(schema), {"f0": value}))
    (row,) = pa.array([found], data).to_pylist()
    return row.get("f0"), rescued.get("$.f0")


def logical(type_: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


INNER = record("int", name="Inner")
INNER_2 = record("string", name="other.Second")
INNER_2["fields"][0]["name"] = "text"
SYMBOLS = {"type": "enum", "name": "Symbols", "symbols": ["A", "B"]}
MOMENT = datetime(2026, 7, 1, 12, 30, 15, 123000, UTC)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("boolean", True),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("float", 1.5),
        ("double", math.inf),
        ("bytes", b"\0\xff"),
        ("string", "ü"),
        (SYMBOLS, "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
        ({"type": "array", "items": ["null", "int"]}, [1, None]),
        (["null", "string"], None),
        (["null", "string"], "x"),
        (["null", INNER], {"f0": 1}),
        (["null", SYMBOLS], "A"),
        (logical("int", "date"), date(1, 1, 1)),
        (logical("int", "date"), date(9999, 12, 31)),
        (logical("long", "timestamp-millis"), MOMENT),
        (logical("long", "timestamp-micros"), MOMENT),
        (logical("bytes", "decimal", precision=38, scale=2), Decimal("-9.25")),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("99.99")),
    ],
)
def test_values_are_in_the_column_of_their_schema(schema: Any, value: Any) -> None:
    assert columns(schema, value) == (value, None)


def test_values_that_look_otherwise_in_the_column() -> None:
    assert columns({"type": "map", "values": "int"}, {"a": 1}) == ([("a", 1)], None)
    # The numbers of local timestamps and times; the Apache encoder writes longs for them.
    micros = AvroSchema(json.dumps(record(logical("long", "local-timestamp-millis"))))
    type_ = extended(pa.struct([]), micros.shape)
    found, _ = micros.reader(type_)(encoded(record("long"), {"f0": 1500}))
    (row,) = pa.array([found], type_).to_pylist()
    assert row == {"f0": datetime(1970, 1, 1, 0, 0, 1, 500_000)}  # noqa: DTZ001
    millis = AvroSchema(json.dumps(record(logical("int", "time-millis"))))
    assert millis.reader(pa.struct([("f0", pa.int64())]))(b"\x04") == ({"f0": 2000}, {})
    uuid = UUID(int=1)
    text = AvroSchema(json.dumps(record(logical("string", "uuid"))))
    type_ = pa.struct([("f0", pa.large_string())])
    assert text.reader(type_)(encoded(record("string"), {"f0": str(uuid)}))[0] == {"f0": str(uuid)}


def test_branches_of_a_union_have_columns_of_their_own() -> None:
    union = ["null", "long", INNER, INNER_2, {"type": "array", "items": "int"}, "boolean"]
    none = dict.fromkeys(["long", "Inner", "Second", "array", "boolean"])
    assert columns(union, 7)[0] == none | {"long": 7}
    assert columns(union, True)[0] == none | {"boolean": True}
    assert columns(union, {"f0": 3})[0] == none | {"Inner": {"f0": 3}}
    assert columns(union, {"text": "x"})[0] == none | {"Second": {"text": "x"}}
    assert columns(union, [1])[0] == none | {"array": [1]}
    assert columns(union, None)[0] is None
    # Of int and long, and of names that differ in case only, one column is for both.
    assert columns(["int", "long"], 2**40)[0] == 2**40


@pytest.mark.parametrize(
    ("schema", "value", "type_", "column"),
    [
        ("int", 5, pa.int64(), 5),
        ("int", 5, pa.float64(), 5.0),
        ("long", 2**31 - 1, pa.int32(), 2**31 - 1),
        ("float", 1.5, pa.float64(), 1.5),
        (SYMBOLS, "A", pa.large_string(), "A"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.large_binary(), b"ab"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("1.50"),
         pa.decimal128(10, 3), Decimal("1.500")),
    ],
)  # fmt: skip
def test_values_fit_wider_columns(schema: Any, value: Any, type_: Any, column: Any) -> None:
    assert columns(schema, value, type_) == (column, None)


DECIMAL = logical("bytes", "decimal", precision=10, scale=2)


@pytest.mark.parametrize(
    ("schema", "value", "type_", "rescued"),
    [
        ("long", 2**31, pa.int32(), 2**31),
        ("long", 2**53 + 1, pa.float64(), 2**53 + 1),
        ("double", 1.5, pa.float32(), 1.5),
        ("double", math.nan, pa.int64(), "nan"),
        ("int", 1, pa.large_string(), 1),
        ("string", "1", pa.int64(), "1"),
        ("bytes", b"\0\1", pa.large_string(), "AAE="),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary(3), "YWI="),
        (DECIMAL, Decimal("1000.25"), pa.decimal128(5, 2), "1000.25"),
        (DECIMAL, Decimal("0.25"), pa.decimal128(5, 1), "0.25"),
        (logical("int", "date"), date(2026, 1, 2), pa.int32(), "2026-01-02"),
        (logical("long", "timestamp-millis"), MOMENT, pa.timestamp("us"),
         "2026-07-01T12:30:15.123000+00:00"),
        (["int", SYMBOLS], "A", pa.int32(), {"Symbols": "A"}),
        (["null", INNER], {"f0": 1}, pa.int32(), {"f0": 1}),
        ({"type": "array", "items": DECIMAL}, [Decimal("1.00")], pa.bool_(), ["1.00"]),
        ({"type": "map", "values": "bytes"}, {"k": b"a"}, pa.bool_(), {"k": "YQ=="}),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_rescued(
    schema: Any, value: Any, type_: Any, rescued: Any
) -> None:
    assert columns(schema, value, type_) == (None, rescued)


@pytest.mark.parametrize(
    ("type_", "number"),
    [
        (logical("int", "date"), 2**31 - 1),
        (logical("long", "timestamp-micros"), -(2**63)),
        (logical("long", "timestamp-millis"), 2**62),
    ],
)
def test_dates_and_times_beyond_the_year_9999_are_rescued_as_numbers(
    type_: Any, number: int
) -> None:
    known = AvroSchema(json.dumps(record(type_)))
    read = known.reader(extended(pa.struct([]), known.shape))
    assert read(encoded(record("long"), {"f0": number})) == ({"f0": None}, {"$.f0": number})


def test_a_decimal_with_more_digits_than_its_precision_is_rescued() -> None:
    known = AvroSchema(json.dumps(record(DECIMAL)))
    read = known.reader(extended(pa.struct([]), known.shape))
    assert read(encoded(record("bytes"), {"f0": b"\x7f" * 8}))[1] == {
        "$.f0": "91872019504357374.71"
    }
    huge = read(encoded(record("bytes"), {"f0": b"\x7f" * 5000}))[1]["$.f0"]
    assert huge.startswith("f39/"), "its digits are not computed"


def test_a_decimal_with_an_impossible_exponent_is_rescued_as_bytes() -> None:
    digits = {"precision": 4_000_000, "scale": 4_000_000}
    known = AvroSchema(json.dumps(record({"type": "bytes", "logicalType": "decimal", **digits})))
    found = known.reader(pa.struct([]))(encoded(record("bytes"), {"f0": b"\x05"}))
    assert found == ({"f0": None}, {"$.f0": "BQ=="})


def test_branches_of_two_namespaces_are_distinguished() -> None:
    union = ["null", record("int", name="a.X"), record("int", name="b.X")]
    known = AvroSchema(json.dumps(record(union)))
    read = known.reader(extended(pa.struct([]), known.shape))
    assert read(b"\x02\x06")[0] == {"f0": {"X": {"f0": 3}}}
    assert read(b"\x04\x06")[0] == {"f0": {"b_X": {"f0": 3}}}


def test_parts_are_rescued_by_their_paths() -> None:
    nested = record(
        {"type": "array", "items": record("int", "string", name="Item")},
        {"type": "map", "values": "long"},
        name="Top",
    )
    type_ = pa.struct(
        [
            ("f0", pa.large_list(pa.struct([("f0", pa.int32())]))),
            ("f1", pa.map_(pa.large_string(), pa.int32())),
        ]
    )
    value = {"f0": [{"f0": 1, "f1": "x"}], "f1": {"a b": 2**40, "c": 1}}
    found, rescued = AvroSchema(json.dumps(nested)).reader(type_)(encoded(nested, value))
    assert found == {"f0": [{"f0": 1, "f1": None}], "f1": [("a b", None), ("c", 1)]}
    assert rescued == {"$.f0[0].f1": "x", '$.f1["a b"]': 2**40}
