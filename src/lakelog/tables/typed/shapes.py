"""The types of fields, inferred from JSON values or taken from a schema. No I/O.

JSON integers are `long`, fractions `double`. The first type of a field wins: Iceberg allows few
changes of types, and `long` to `double` is not among them. The changes that it allows are made:
`int` to `long`, `float` to `double`, and more digits of a decimal with the same scale.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

FIELDS_MAX = 1000
"""Fields of one table, over all levels. Each costs space in every data file."""
DEPTH_MAX = 16
NAME = re.compile(r"[^\W\d]\w{0,126}")
"""Names that SQL accepts without quotes. Other fields are rescued."""
_SCALARS = {
    **{"boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32()},
    **{"double": pa.float64(), "string": pa.large_string(), "binary": pa.large_binary()},
    **{
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
        "timestamptz": pa.timestamp("us", "UTC"),
    },
}
_PARAMETERS = re.compile(r"(fixed|decimal)[\[(](\d+)(?:,(\d+))?[\])]")
LONGS = range(-(1 << 63), 1 << 63)


@dataclass(slots=True)
class Shape:
    """The values at one path.

    kind: a type of Iceberg, such as `decimal(9,2)`, `struct`, `list`, or `map` with strings as
    keys; empty before the first value other than null, and for values that can be in no column.
    element: of a list or map.
    """

    kind: str = ""
    fields: dict[str, Shape] = field(default_factory=dict)
    element: Shape | None = None

    def see(self, value: Any, depth: int = DEPTH_MAX) -> None:
        """Take a JSON value into account."""
        kind = _kind_of(value)
        if not kind or not depth:
            return
        if {self.kind, kind} == {"long", "double"}:
            self.kind = "double"
        self.kind = self.kind or kind
        if self.kind != kind:
            return
        if kind == "struct":
            for name in list(value)[:FIELDS_MAX]:
                if NAME.fullmatch(name):
                    self.fields.setdefault(name, Shape()).see(value[name], depth - 1)
        elif kind == "list":
            self.element = self.element or Shape()
            for item in value[:FIELDS_MAX]:
                self.element.see(item, depth - 1)


def shape_of(values: Iterable[Any]) -> Shape:
    """Return the shape of the JSON objects among the values."""
    shape = Shape("struct")
    for value in values:
        shape.see(value)
    return shape


def extended(current: pa.StructType, shape: Shape) -> pa.StructType:
    """Return the type with the new fields of a shape, at most `FIELDS_MAX` in all.

    Known fields keep their types. Of names that differ in case only the first becomes a field,
    because SQL does not distinguish them.
    """
    budget = [FIELDS_MAX - _count(current)]
    return _extended_struct(current, shape.fields, budget)


def _extended_struct(
    current: pa.StructType, seen: Mapping[str, Shape], budget: list[int]
) -> pa.StructType:
    fields = [
        f.with_type(_extended(f.type, seen[f.name], budget)) if f.name in seen else f
        for f in current
    ]
    names = {field.name.lower() for field in current}
    for name, shape in seen.items():
        if name.lower() in names:
            continue
        added = _new(shape, budget)
        if added is not None:
            names.add(name.lower())
            fields.append(pa.field(name, added))
    return pa.struct(fields)


def _extended(current: pa.DataType, shape: Shape, budget: list[int]) -> pa.DataType:
    if pa.types.is_struct(current) and shape.kind == "struct":
        return _extended_struct(current, shape.fields, budget)
    if pa.types.is_large_list(current) and shape.kind == "list" and shape.element is not None:
        element = current.value_field
        return pa.large_list(element.with_type(_extended(element.type, shape.element, budget)))
    if pa.types.is_map(current) and shape.kind == "map" and shape.element is not None:
        item = current.item_field
        wider = item.with_type(_extended(item.type, shape.element, budget))
        return pa.map_(current.key_field, wider)
    return _promoted(current, shape.kind)


def _promoted(current: pa.DataType, kind: str) -> pa.DataType:
    """Return the type that holds all values of both, if Iceberg can change the column to it."""
    if kind in ("struct", "list", "map", ""):
        return current
    seen = scalar(kind)
    if pa.types.is_decimal(current) and pa.types.is_decimal(seen) and current.scale == seen.scale:
        return max(current, seen, key=lambda type_: type_.precision)
    wider = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}
    return seen if (current, seen) in wider else current


def _new(shape: Shape, budget: list[int]) -> pa.DataType | None:
    """Return the type of a new field; `None` if it is unknown, or if there are too many."""
    if budget[0] <= 0 or not shape.kind:
        return None
    budget[0] -= 1
    if shape.kind in ("list", "map"):
        element = None if shape.element is None else _new(shape.element, budget)
        type_ = None if element is None else _container(shape.kind, element)
    elif shape.kind == "struct":
        struct = _extended_struct(pa.struct([]), shape.fields, budget)
        type_ = struct if len(struct) else None
    else:
        type_ = scalar(shape.kind)
    budget[0] += type_ is None
    return type_


def scalar(kind: str) -> pa.DataType:
    """Return the Arrow type of a scalar kind."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    match = _PARAMETERS.fullmatch(kind)
    assert match is not None, "a kind is declared here"
    name, first, second = match.groups()
    return pa.binary(int(first)) if name == "fixed" else pa.decimal128(int(first), int(second))


def _container(kind: str, element: pa.DataType) -> pa.DataType:
    if kind == "list":
        return pa.large_list(pa.field("element", element))
    return pa.map_(pa.large_string(), pa.field("value", element))


def _kind_of(value: Any) -> str:
    """Return the kind of a JSON value; an empty text if it can be in no column."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if value in LONGS else ""
    names = {float: "double", str: "string", dict: "struct", list: "list"}
    return names.get(type(value), "")


def _count(type_: pa.DataType) -> int:
    if pa.types.is_struct(type_):
        return sum(1 + _count(field.type) for field in type_)
    if pa.types.is_map(type_):
        return 1 + _count(type_.item_type)
    return 1 + _count(type_.value_type) if pa.types.is_large_list(type_) else 0


def with_leaves(type_: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type with `leaf` of each type in it that has no parts, and without field ids."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, with_leaves(field.type, leaf)) for field in type_])
    if pa.types.is_large_list(type_):
        return pa.large_list(pa.field("element", with_leaves(type_.value_type, leaf)))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, pa.field("value", with_leaves(type_.item_type, leaf)))
    return leaf(type_)
