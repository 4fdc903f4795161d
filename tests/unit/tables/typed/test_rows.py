from __future__ import annotations

import pyarrow as pa

from lakelog.tables.typed.rows import TypedRows, untyped
from lakelog.tables.typed.shapes import extended, shape_of

VALUE = pa.field("value", pa.large_binary())
DATA = pa.field("data", extended(pa.struct([]), shape_of([{"a": 1}])))
RESCUED = pa.field("rescued", pa.large_string())
SCHEMA = pa.schema([VALUE, DATA, RESCUED])


def batch(*values: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, VALUE.type)], schema=pa.schema([VALUE]))


def test_rows_get_the_typed_columns() -> None:
    rows = TypedRows(SCHEMA)
    found = rows.complete(batch(b'{"a": 1}', None, b'{"b": 2}'))
    assert found.schema == SCHEMA
    assert found.column("data").to_pylist() == [{"a": 1}, None, {"a": None}]
    assert found.column("rescued").to_pylist() == [None, None, '{"$.b":2}']
    assert untyped(SCHEMA).names == ["value"]


def test_a_schema_without_them_changes_nothing() -> None:
    plain = batch(b"x")
    assert TypedRows(pa.schema([VALUE])).complete(plain) is plain


def test_fields_that_did_not_fit_are_known_afterwards() -> None:
    rows = TypedRows(SCHEMA)
    rows.complete(batch(b'{"a": 1}', b'{"a": "x", "b": 2}'))
    rows.complete(batch(*[b'{"c": true}'] * 2000, b'{"late": 1}'))
    (unknown,) = rows.unknown
    known = extended(DATA.type, unknown)
    assert [(each.name, each.type) for each in known] == [
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("c", pa.bool_()),
    ]
