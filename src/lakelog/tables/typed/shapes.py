"""Infers the types of fields from JSON values. No I/O.

Integers are `long`, fractions `double`. The first type of a field wins: Iceberg allows few
changes of types, and `long` to `double` is not among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

FIELDS_MAX = 1000
"""Fields of one table, over all levels. Each costs space in every data file."""
_DEPTH_MAX = 16
_NAME = re.compile(r"[^\W\d]\w{0,126}")
"""Names that SQL accepts without quotes. Other fields are rescued."""
_SCALARS = {"boolean": pa.bool_(), "long": pa.int64(), "double": pa.float64()}
_SCALARS["string"] = pa.large_string()
LONGS = range(-(1 << 63), 1 << 63)


@dataclass(slots=True)
class Shape:
    """The values that were seen at one path.

    kind: a key of `_SCALARS`, `struct`, `list`, or empty before the first value other than null.
    """

    kind: str = ""
    fields: dict[str, Shape] = field(default_factory=dict)
    element: Shape | None = None

    def see(self, value: Any, depth: int = _DEPTH_MAX) -> None:
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
                if _NAME.fullmatch(name):
                    self.fields.setdefault(name, Shape()).see(value[name], depth - 1)
        elif kind == "list":
            self.element = self.element or Shape()
            for each in value[:FIELDS_MAX]:
                self.element.see(each, depth - 1)


def shape_of(values: Iterable[Any]) -> Shape:
    """Return the shape of the JSON objects among the values."""
    shape = Shape("struct")
    for value in values:
        shape.see(value)
    return shape


def extended(known: pa.StructType, shape: Shape) -> pa.StructType:
    """Return the type with the new fields of a shape, at most `FIELDS_MAX` in all.

    Known fields keep their types. Of names that differ in case only the first becomes a field,
    because SQL does not distinguish them.
    """
    budget = [FIELDS_MAX - _count(known)]
    return _extended_struct(known, shape.fields, budget)


def _extended_struct(
    known: pa.StructType, seen: Mapping[str, Shape], budget: list[int]
) -> pa.StructType:
    fields = [
        each.with_type(_extended(each.type, seen[each.name], budget)) if each.name in seen else each
        for each in known
    ]
    names = {each.name.lower() for each in known}
    for name, shape in seen.items():
        if name.lower() in names:
            continue
        found = _new(shape, budget)
        if found is not None:
            names.add(name.lower())
            fields.append(pa.field(name, found))
    return pa.struct(fields)


def _extended(known: pa.DataType, shape: Shape, budget: list[int]) -> pa.DataType:
    if pa.types.is_struct(known) and shape.kind == "struct":
        return _extended_struct(known, shape.fields, budget)
    if pa.types.is_large_list(known) and shape.kind == "list" and shape.element is not None:
        element = known.value_field
        return pa.large_list(element.with_type(_extended(element.type, shape.element, budget)))
    return known


def _new(shape: Shape, budget: list[int]) -> pa.DataType | None:
    """Return the type of a new field; `None` if it is unknown, or if there are too many."""
    if budget[0] <= 0 or not shape.kind:
        return None
    budget[0] -= 1
    if shape.kind == "list":
        element = None if shape.element is None else _new(shape.element, budget)
        found = None if element is None else pa.large_list(pa.field("element", element))
    elif shape.kind == "struct":
        struct = _extended_struct(pa.struct([]), shape.fields, budget)
        found = struct if len(struct) else None
    else:
        found = _SCALARS[shape.kind]
    budget[0] += found is None
    return found


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
        return sum(1 + _count(each.type) for each in type_)
    return 1 + _count(type_.value_type) if pa.types.is_large_list(type_) else 0
