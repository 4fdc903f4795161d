"""Types of the fields in JSON values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakelog.tables.typed.shapes import FIELDS_MAX, Shape, extended, shape_of

NOTHING = pa.struct([])
LONG, DOUBLE, TEXT, FLAG = pa.int64(), pa.float64(), pa.large_string(), pa.bool_()


def inferred(*values: Any, known: pa.StructType = NOTHING) -> dict[str, pa.DataType]:
    return {each.name: each.type for each in extended(known, shape_of(values))}


@pytest.mark.parametrize(
    ("known", "kind", "wider"),
    [
        (pa.int32(), "long", LONG),
        (LONG, "int", LONG),
        (LONG, "double", LONG),
        (pa.float32(), "double", DOUBLE),
        (pa.decimal128(4, 2), "decimal(9,2)", pa.decimal128(9, 2)),
        (pa.decimal128(9, 2), "decimal(4,2)", pa.decimal128(9, 2)),
        (pa.decimal128(4, 2), "decimal(9,3)", pa.decimal128(4, 2)),
        (pa.date32(), "timestamp", pa.date32()),
        (pa.int32(), "struct", pa.int32()),
        (pa.int32(), "", pa.int32()),
        (pa.map_(TEXT, pa.int32()), "list", pa.map_(TEXT, pa.int32())),
    ],
)
def test_a_column_widens_as_iceberg_allows(
    known: pa.DataType, kind: str, wider: pa.DataType
) -> None:
    found = extended(pa.struct([("a", known)]), Shape("struct", {"a": Shape(kind)}))
    assert found.field("a").type == wider


def test_values_of_a_map_widen_too() -> None:
    def a_map(**fields: str) -> Shape:
        item = Shape("struct", {name: Shape(kind) for name, kind in fields.items()})
        return Shape("struct", {"m": Shape("map", element=item)})

    first = extended(NOTHING, a_map(a="int"))
    found = extended(first, a_map(a="long", b="fixed[4]")).field("m").type
    assert found == pa.map_(TEXT, pa.struct([("a", LONG), ("b", pa.binary(4))]))
    many = a_map(**{f"f{number}": "int" for number in range(2 * FIELDS_MAX)})
    assert extended(first, many).field("m").type.item_type.num_fields == FIELDS_MAX - 2


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ((1, -(1 << 63)), LONG),
        ((1.0,), DOUBLE),
        ((1, 1.5), DOUBLE),
        ((1.5, 1), DOUBLE),
        (("1",), TEXT),
        ((True,), FLAG),
        ((None, None, 1), LONG),
        ((1, "x"), LONG),
        (("x", 1), TEXT),
        ((True, 1), FLAG),
        (([1], [None], []), pa.large_list(pa.field("element", LONG))),
        (([[True]],), pa.large_list(pa.field("element", pa.large_list(pa.field("element", FLAG))))),
        (({"b": 1}, {"c": "x"}), pa.struct([("b", LONG), ("c", TEXT)])),
    ],
)
def test_the_first_type_of_a_field_wins_and_fractions_are_double(
    values: tuple[Any, ...], type_: pa.DataType
) -> None:
    assert inferred(*({"a": value} for value in values)) == {"a": type_}


@pytest.mark.parametrize("value", [None, [], {}, [None], {"x y": 1}, 1 << 63, [{}]])
def test_a_field_without_a_known_type_is_no_column_yet(value: Any) -> None:
    assert inferred({"a": value}) == {}


@pytest.mark.parametrize("name", ["", "a b", "a.b", "1a", "a" * 128, "\ud800", "a-b"])
def test_names_that_sql_would_have_to_quote_are_no_columns(name: str) -> None:
    assert inferred({name: 1}) == {}


def test_values_that_are_no_objects_have_no_fields() -> None:
    assert inferred(1, "x", [{"a": 1}], None) == {}


def test_of_names_that_differ_in_case_the_first_is_a_column() -> None:
    assert inferred({"id": 1, "ID": 2}) == {"id": LONG}
    assert inferred({"ID": "x"}, known=pa.struct([("id", LONG)])) == {"id": LONG}


def test_known_fields_keep_their_type_and_get_new_fields() -> None:
    element = pa.field("element", pa.struct([("x", LONG)]), metadata={"PARQUET:field_id": "7"})
    known = pa.struct([("a", LONG), ("b", pa.large_list(element)), ("gone", TEXT)])
    found = extended(known, shape_of([{"a": 1.5, "b": [{"x": 1, "y": "s"}], "c": True}]))
    wider = element.with_type(pa.struct([("x", LONG), ("y", TEXT)]))
    assert found == pa.struct(
        [("a", LONG), ("b", pa.large_list(wider)), ("gone", TEXT), ("c", FLAG)]
    )
    assert found.field("b").type.value_field.metadata == element.metadata


def test_the_number_of_fields_and_their_depth_are_bounded() -> None:
    many = {f"f{number}": number for number in range(FIELDS_MAX)}
    assert len(inferred(many, {"more": 1})) == FIELDS_MAX
    assert inferred({"more": 1}, known=extended(NOTHING, shape_of([many]))).get("more") is None
    deep: Any = 1
    for _ in range(500):
        deep = {"a": deep, "b": 1}
    type_, depth = extended(NOTHING, shape_of([deep])), 0
    while pa.types.is_struct(type_) and type_.get_field_index("a") >= 0:
        type_, depth = type_.field("a").type, depth + 1
    assert 8 < depth < 32
