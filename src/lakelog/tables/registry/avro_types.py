"""The types of an Avro schema, with resolved names, and their columns. No I/O.

fastavro checks the schema. Its parsed form leaves names to the reader; here each `AvroType` has its
parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakelog.tables.registry.client import UnsupportedSchemaError
from lakelog.tables.typed.shapes import DEPTH_MAX, FIELDS_MAX, NAME, Shape

DECIMAL_DIGITS_MAX = 38
"""Of Iceberg, Arrow and Spark."""
LEVELS_MAX = 64
"""Decoders recurse once for each level, and fastavro's checks no limit of the stack."""
EMPTY_VALUES_MAX = 16
"""A byte of data decodes to at most so many values that take no bytes themselves."""
_SIZES = range(1 << 31)
"""Arrow's limit of a fixed, in bytes."""
_FIXED_BYTES_MAX = 1024
"""Arrow reserves the size of a fixed for each null; larger ones are binary columns."""
_LOGICAL = {
    ("int", "date"): "date",
    ("int", "time-millis"): "time-millis",
    ("long", "time-micros"): "time-micros",
    ("long", "timestamp-millis"): "timestamp-millis",
    ("long", "timestamp-micros"): "timestamp-micros",
    ("long", "local-timestamp-millis"): "local-timestamp-millis",
    ("long", "local-timestamp-micros"): "local-timestamp-micros",
    ("bytes", "decimal"): "decimal",
    ("fixed", "decimal"): "decimal",
}
"""Logical types by their Avro type. For others the type alone counts, as the specification says."""
_COLUMNS = {
    **{"boolean": "boolean", "int": "int", "long": "long", "float": "float", "double": "double"},
    **{"bytes": "binary", "string": "string", "enum": "string", "date": "date"},
    **{"time-millis": "long", "time-micros": "long"},
    **{"timestamp-millis": "timestamptz", "timestamp-micros": "timestamptz"},
    **{"local-timestamp-millis": "timestamp", "local-timestamp-micros": "timestamp"},
}


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type of an Avro schema.

    kind: the name of a primitive, complex or logical type. base: the type of its bytes. name: the
    full name of a record, enum or fixed. fields: of a record, in order. parts: of a union the
    branches, of an array or map the type of its items. size: of a fixed, in bytes. precision,
    scale: of a decimal, in digits. levels: of nested types, with this one. empties: how many values
    a value has that take no bytes, outside of its arrays and maps.
    """

    kind: str
    base: str
    name: str = ""
    fields: tuple[tuple[str, AvroType], ...] = ()
    parts: tuple[AvroType, ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    levels: int = 1
    empties: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether values take no bytes."""
        if self.kind == "record":
            return all(type_.is_empty for _, type_ in self.fields)
        return self.kind != "union" and self.empties > 0

    def shape(self) -> Shape:
        """Return the shape of the columns; its kind is empty if there can be none."""
        return _shape(self, DEPTH_MAX, [FIELDS_MAX])


def resolved(schema: Any, named: Mapping[str, Any]) -> AvroType:
    """Return the type of a schema that fastavro has parsed.

    named: the definitions of named types. Raises `UnsupportedSchemaError` for types that contain
    themselves or have too many levels, for arrays whose items take no bytes, and for records with
    too many values that take no bytes.
    """
    return _Resolver(named).resolve(schema)


def branches(union: AvroType) -> dict[str, AvroType]:
    """Return the branches of a union other than null by the names of their columns.

    Of int and long, and of float and double, one branch stands for both: in values they cannot be
    distinguished. Of two types with one name in different namespaces, the later one has its full
    name.
    """
    types = [branch for branch in union.parts if branch.kind != "null"]
    kinds = {branch.base for branch in types}
    for narrow, wide in (("int", "long"), ("float", "double")):
        if {narrow, wide} <= kinds:
            types = [branch for branch in types if branch.base not in (narrow, wide)]
            types.append(AvroType(wide, wide))
    named: dict[str, AvroType] = {}
    for branch in types:
        full = branch.name or branch.kind.replace("-", "_")
        name = full.rpartition(".")[2]
        if name in named:
            name = full.replace(".", "_")
        while name in named:
            name += "_"
        named[name] = branch
    return named


class _Resolver:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._done: dict[str, AvroType] = {}
        self._open: set[str] = set()

    def resolve(self, schema: Any) -> AvroType:
        if isinstance(schema, list):
            return _composite("union", parts=tuple(map(self.resolve, schema)))
        if isinstance(schema, str):
            return self._by_name(schema) if schema in self._named else _logical({}, schema)
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self.resolve(kind)
        if kind in ("record", "error", "enum", "fixed"):
            return self._by_name(schema["name"])
        if kind in ("array", "map"):
            item = self.resolve(schema["items" if kind == "array" else "values"])
            if kind == "array" and item.is_empty:
                # A few bytes could claim any number of items.
                raise UnsupportedSchemaError("arrays whose items take no bytes are not supported")
            return _composite(kind, parts=(item,))
        if kind in self._named:
            return self._by_name(kind)
        return _logical(schema, kind)

    def _by_name(self, name: str) -> AvroType:
        if name in self._open:
            # A column has a fixed depth, and a hostile value could be nested without end.
            raise UnsupportedSchemaError(f"the record {name!r} contains itself")
        if name not in self._done:
            self._open.add(name)
            self._done[name] = self._define(name, self._named[name])
            self._open.discard(name)
        return self._done[name]

    def _define(self, name: str, schema: Mapping[str, Any]) -> AvroType:
        kind = schema["type"]
        if kind == "enum":
            return AvroType(kind, kind, name)
        if kind == "fixed":
            return _logical(schema, kind, name, _size(schema))
        fields = tuple((field["name"], self.resolve(field["type"])) for field in schema["fields"])
        return _composite("record", name, fields=fields)


def _size(fixed: Mapping[str, Any]) -> int:
    size = int(fixed["size"])
    if size not in _SIZES:
        raise UnsupportedSchemaError(f"the fixed {fixed['name']!r} has a size of {size} bytes")
    return size


def _composite(
    kind: str,
    name: str = "",
    *,
    fields: tuple[tuple[str, AvroType], ...] = (),
    parts: tuple[AvroType, ...] = (),
) -> AvroType:
    inside = [*parts, *(type_ for _, type_ in fields)]
    levels = 1 + max((part.levels for part in inside), default=0)
    if levels > LEVELS_MAX:
        raise UnsupportedSchemaError(f"the Avro schema has more than {LEVELS_MAX} levels")
    empties = 0
    if kind == "record":
        # Records may share their parts, so few definitions describe very many values.
        empties = sum(part.empties for part in inside) + all(part.is_empty for part in inside)
        if empties > EMPTY_VALUES_MAX:
            raise UnsupportedSchemaError(
                f"the record {name!r} has more than {EMPTY_VALUES_MAX} values that take no bytes"
            )
    elif kind == "union":
        # The number of the branch takes a byte.
        empties = max([0, *(part.empties - 1 for part in inside)])
    return AvroType(kind, kind, name, fields, parts, levels=levels, empties=empties)


def _logical(schema: Mapping[str, Any], kind: str, name: str = "", size: int = 0) -> AvroType:
    logical = _LOGICAL.get((kind, str(schema.get("logicalType"))), kind)
    if logical != "decimal":
        is_empty = kind == "null" or (kind == "fixed" and not size)
        return AvroType(logical, kind, name, size=size, empties=int(is_empty))
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    # Not `isinstance`: JSON's true would pass as 1.
    is_valid = type(precision) is type(scale) is int and 0 <= scale <= precision
    if not is_valid or not precision:
        return AvroType(kind, kind, name, size=size)
    return AvroType(logical, kind, name, size=size, precision=precision, scale=scale)


def _shape(type_: AvroType, depth: int, budget: list[int]) -> Shape:
    budget[0] -= 1
    if depth <= 0 or budget[0] < 0:
        return Shape()
    if type_.kind == "union":
        return _union_shape(type_, depth, budget)
    if type_.kind == "record":
        fields = {
            name: _shape(field, depth - 1, budget)
            for name, field in type_.fields
            if NAME.fullmatch(name)
        }
        return Shape("struct", fields)
    if type_.kind in ("array", "map"):
        item = _shape(type_.parts[0], depth - 1, budget)
        return Shape("list" if type_.kind == "array" else "map", element=item)
    if type_.kind == "fixed":
        if type_.size > _FIXED_BYTES_MAX:
            return Shape("binary")
        return Shape(f"fixed[{type_.size}]" if type_.size else "")
    if type_.kind == "decimal":
        fits = type_.precision <= DECIMAL_DIGITS_MAX
        return Shape(f"decimal({type_.precision},{type_.scale})" if fits else "")
    return Shape(_COLUMNS.get(type_.kind, ""))


def _union_shape(union: AvroType, depth: int, budget: list[int]) -> Shape:
    named = branches(union)
    if len(named) == 1:
        return _shape(next(iter(named.values())), depth, budget)
    fields = {name: _shape(branch, depth - 1, budget) for name, branch in named.items()}
    return Shape("struct" if fields else "", fields)
