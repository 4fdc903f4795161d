"""The columns of Avro schemas."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lakelog.tables.registry.avro import AvroSchema
from lakelog.tables.registry.client import UnsupportedSchemaError
from lakelog.tables.typed.shapes import DEPTH_MAX, FIELDS_MAX, Shape, extended
from unit.tables.registry.avro_values import record

FIXED = {"type": "fixed", "name": "Four", "size": 4}


def logical(type_: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


def column_types(schema: Any) -> dict[str, pa.DataType]:
    shape = AvroSchema(json.dumps(schema)).shape
    return {each.name: each.type for each in extended(pa.struct([]), shape)}


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("bytes", pa.large_binary()),
        ("string", pa.large_string()),
        (FIXED, pa.binary(4)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.large_string()),
        ({"type": "array", "items": "int"}, pa.large_list(pa.field("element", pa.int32()))),
        ({"type": "map", "values": "int"}, pa.map_(pa.large_string(), pa.int32())),
        (logical("int", "date"), pa.date32()),
        (logical("int", "time-millis"), pa.int64()),
        (logical("long", "time-micros"), pa.int64()),
        (logical("long", "timestamp-millis"), pa.timestamp("us", "UTC")),
        (logical("long", "timestamp-micros"), pa.timestamp("us", "UTC")),
        (logical("long", "local-timestamp-millis"), pa.timestamp("us")),
        (logical("long", "local-timestamp-micros"), pa.timestamp("us")),
        (logical("string", "uuid"), pa.large_string()),
        (logical("bytes", "decimal", precision=9, scale=2), pa.decimal128(9, 2)),
        ({**FIXED, "logicalType": "decimal", "precision": 5}, pa.decimal128(5, 0)),
        (["null", "int"], pa.int32()),
        (["null", "int", "long"], pa.int64()),
        (["float", "double"], pa.float64()),
        (["int", "string"], pa.struct([("int", pa.int32()), ("string", pa.large_string())])),
        (
            ["null", logical("long", "timestamp-millis"), FIXED],
            pa.struct([("timestamp_millis", pa.timestamp("us", "UTC")), ("Four", pa.binary(4))]),
        ),
        # Unknown and malformed logical types count as if they were absent.
        (logical("long", "timestamp-nanos"), pa.int64()),
        (logical("string", "date"), pa.large_string()),
        (logical("bytes", "decimal"), pa.large_binary()),
        (logical("bytes", "decimal", precision=True), pa.large_binary()),
    ],
)
def test_each_type_has_a_column(type_: Any, expected: pa.DataType) -> None:
    assert column_types(record(type_)) == {"f0": expected}


@pytest.mark.parametrize(
    "type_",
    [
        "null",
        logical("bytes", "decimal", precision=39, scale=2),
        record(name="Nothing"),
        {"type": "array", "items": record(name="Nothing") | {"fields": []}},
    ],
)
def test_types_without_a_column(type_: Any) -> None:
    if isinstance(type_, dict) and type_["type"] == "array":
        with pytest.raises(UnsupportedSchemaError, match="arrays whose items take no bytes"):
            column_types(record(type_))
    else:
        assert column_types(record(type_)) == {}


def test_values_that_are_no_records_have_no_columns() -> None:
    assert AvroSchema('"string"').shape == Shape("struct")


def test_names_are_resolved_in_their_namespace() -> None:
    inner = {**record("int", name="Inner"), "namespace": "a.b"}
    outer = record(inner, "a.b.Inner", {"type": "array", "items": "a.b.Inner"}, name="a.b.Outer")
    found = column_types(outer)
    assert found["f0"] == found["f1"] == pa.struct([("f0", pa.int32())])
    assert pa.types.is_struct(found["f2"].value_type)


def test_a_record_that_contains_itself_is_refused() -> None:
    # The decoder does not limit the depth: a hostile value would end the process.
    with pytest.raises(UnsupportedSchemaError, match="the record 'Row' contains itself"):
        AvroSchema(json.dumps(record(["null", "Row"])))


def test_a_large_fixed_is_binary_so_that_nulls_need_no_space() -> None:
    known = AvroSchema(
        json.dumps(record(["null", {"type": "fixed", "name": "Large", "size": 2000}]))
    )
    data = extended(pa.struct([]), known.shape)
    assert data == pa.struct([("f0", pa.large_binary())])
    value = b"x" * 2000
    assert known.reader(data)(b"\x02" + value) == ({"f0": value}, {})


@pytest.mark.parametrize("size", [-1, 1 << 31, 10**30])
def test_a_fixed_of_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(UnsupportedSchemaError, match=f"the fixed 'F' has a size of {size} bytes"):
        AvroSchema(json.dumps(record({"type": "fixed", "name": "F", "size": size})))


def test_branches_with_one_name_in_two_namespaces_have_a_column_each() -> None:
    union = [record("int", name="a.X"), record("string", name="b.X"), record("int", name="X")]
    found = column_types(record(["null", *union]))["f0"]
    assert [each.name for each in found] == ["X", "b_X", "X_"]


def test_records_with_many_values_from_no_bytes_are_refused() -> None:
    # Without the limit 30 definitions make 2**30 records of no bytes.
    shared = record(name="R0")
    for level in range(1, 30):
        shared = record(shared, f"R{level - 1}", name=f"R{level}")
    item = record("boolean", *["null"] * 20, name="Item")
    for type_ in (shared, {"type": "array", "items": item}):
        with pytest.raises(UnsupportedSchemaError, match="more than 16 values that take no bytes"):
            AvroSchema(json.dumps(record(type_)))
    nullable = record(*[["null", "int"]] * 100, name="Item")
    AvroSchema(json.dumps(record({"type": "array", "items": nullable})))


def test_levels_are_limited_also_of_schemas_whose_text_is_flat() -> None:
    # The decoder recurses in C: with 50,000 levels the process ended by a segmentation fault.
    chain = [record("int", name="R0")]
    chain += [record(f"R{level - 1}", name=f"R{level}") for level in range(1, 100)]
    with pytest.raises(UnsupportedSchemaError, match="more than 64 levels"):
        AvroSchema(json.dumps(record(chain)))


def test_depth_and_number_of_columns_are_limited() -> None:
    nested = record("int", name="R0")
    for level in range(30):
        nested = record(nested, name=f"R{level + 1}")
    depth, type_ = 0, pa.struct(list(column_types(record("int", nested, name="Top")).items()))
    while pa.types.is_struct(type_):
        depth, type_ = depth + 1, type_.field(type_.num_fields - 1).type
    assert depth <= DEPTH_MAX
    # Each level doubles the columns of the last one.
    wide = record("int", "int", name="W0")
    for level in range(1, 16):
        wide = record(wide, f"W{level - 1}", name=f"W{level}")
    shape = AvroSchema(json.dumps(wide)).shape
    assert _fields(shape) <= 2 * FIELDS_MAX
    extended(pa.struct([]), shape)


def _fields(shape: Shape) -> int:
    return sum(1 + _fields(each) for each in shape.fields.values())
