"""An Avro schema: its columns, and the decoder of its values. Importing this module needs fastavro.

fastavro checks no depth and no counts; `resolved` refuses the schemas for which that matters.

Values of one Avro type become a column of one Arrow type, without I/O. As for JSON, a value fits
only if nothing is lost; what does not fit goes into `Rescued`. fastavro decodes values without
their logical types: dates and times are numbers.
"""

from __future__ import annotations

import io
import json
import math
import struct
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from lakelog.tables.registry.avro_types import AvroType, branches, resolved
from lakelog.tables.registry.client import UnreadableValueError, UnsupportedSchemaError
from lakelog.tables.typed.fitting import EXACT, Fit, Reader, Rescued, step
from lakelog.tables.typed.shapes import LONGS, Shape

_INTS = range(-(1 << 31), 1 << 31)
_EPOCH, _EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
_DAYS = range((date.min - _EPOCH_DAY).days, (date.max - _EPOCH_DAY).days + 1)
_US_PER_DAY = 86_400_000_000
_MICROSECONDS = range(_DAYS.start * _US_PER_DAY, _DAYS.stop * _US_PER_DAY)
"""The years 1 to 9999."""
_UNBOUNDED = Context(prec=1000)
_DECIMAL_BYTES_MAX = 400
"""A decimal with more bytes is not converted: that takes time that grows with their square."""
_DECIMAL_SCALE_MAX = 1000
"""Python's decimals have a least exponent, which a schema may exceed."""

Convert = Callable[[Any], Any]
"""Returns the value for a column; `None` if it does not fit."""


def fit_avro(avro: AvroType, type_: pa.DataType | None) -> Fit:
    """Return the function for values of `avro`, not null, in a column of the Arrow type.

    type_: `None` if there is no column, so that all values are rescued.
    """
    if type_ is None:
        return _rescue(avro)
    if avro.kind == "union":
        return _fit_union(avro, type_)
    if avro.kind == "record" and pa.types.is_struct(type_):
        return _fit_record(avro, type_)
    if avro.kind == "array" and pa.types.is_large_list(type_):
        return _fit_array(avro, type_)
    if avro.kind == "map" and pa.types.is_map(type_):
        return _fit_map(avro, type_)
    convert = _conversion(avro, type_)
    return _rescue(avro) if convert is None else _fit_scalar(avro, convert)


def plain(avro: AvroType, value: Any) -> Any:
    """Return a value for JSON: bytes in base64, decimals and times as text."""
    if value is None:
        return None
    if avro.kind == "union":
        name, branch, content = _branch(avro, value)
        inner = plain(branch, content)
        return inner if len(branches(avro)) == 1 else {name: inner}
    if avro.kind == "record":
        return {name: plain(field, value[name]) for name, field in avro.fields}
    if avro.kind == "array":
        return [plain(avro.parts[0], item) for item in value]
    if avro.kind == "map":
        return {key: plain(avro.parts[0], item) for key, item in value.items()}
    return _plain_scalar(avro, value)


def _plain_scalar(avro: AvroType, value: Any) -> Any:
    is_short = avro.scale <= _DECIMAL_SCALE_MAX and avro.kind == "decimal"
    if is_short and len(value) <= _DECIMAL_BYTES_MAX:
        return str(_decimal(avro, value))
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if avro.kind == "date" and value in _DAYS:
        return (_EPOCH_DAY + timedelta(value)).isoformat()
    if "timestamp" in avro.kind:
        micros = _micros(avro, value)
        if micros in _MICROSECONDS:
            text = (_EPOCH + timedelta(microseconds=micros)).isoformat()
            return text.removesuffix("+00:00") if avro.kind.startswith("local") else text
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _rescue(avro: AvroType) -> Fit:
    def fit(value: Any, path: str, rescued: Rescued) -> None:
        if value is not None:
            rescued[path] = plain(avro, value)

    return fit


def _fit_scalar(avro: AvroType, convert: Convert) -> Fit:
    def fit(value: Any, path: str, rescued: Rescued) -> Any:
        converted = None if value is None else convert(value)
        if converted is None and value is not None:
            rescued[path] = plain(avro, value)
        return converted

    return fit


def _fit_record(avro: AvroType, type_: pa.StructType) -> Fit:
    types = {field.name: field.type for field in type_}
    fits = [(name, step(name), fit_avro(field, types.get(name))) for name, field in avro.fields]

    def fit(value: Any, path: str, rescued: Rescued) -> Any:
        if value is None:
            return None
        return {name: fitter(value[name], path + part, rescued) for name, part, fitter in fits}

    return fit


def _fit_array(avro: AvroType, type_: pa.LargeListType) -> Fit:
    item = fit_avro(avro.parts[0], type_.value_type)

    def fit(value: Any, path: str, rescued: Rescued) -> Any:
        if value is None:
            return None
        return [item(element, f"{path}[{at}]", rescued) for at, element in enumerate(value)]

    return fit


def _fit_map(avro: AvroType, type_: pa.MapType) -> Fit:
    item = fit_avro(avro.parts[0], type_.item_type)

    def fit(value: Any, path: str, rescued: Rescued) -> Any:
        if value is None:
            return None
        return [(key, item(element, path + step(key), rescued)) for key, element in value.items()]

    return fit


def _fit_union(avro: AvroType, type_: pa.DataType) -> Fit:
    """Return the function for a union: one branch has its own column, several are a struct."""
    named = branches(avro)
    if len(named) == 1:
        (branch,) = named.values()
        only = fit_avro(branch, type_)
        return lambda value, path, rescued: only(_unwrapped(value), path, rescued)
    if not pa.types.is_struct(type_):
        return _rescue(avro)
    types = {field.name: field.type for field in type_}
    fits = {name: fit_avro(branch, types.get(name)) for name, branch in named.items()}

    def fit(value: Any, path: str, rescued: Rescued) -> Any:
        if value is None:
            return None
        name, _, inner = _branch(avro, value)
        return {name: fits[name](inner, path + step(name), rescued)}

    return fit


def _unwrapped(value: Any) -> Any:
    """Return the value of a union's branch: fastavro adds the name of a named type."""
    return value[1] if isinstance(value, tuple) else value


_KINDS = {bool: "boolean", int: "long", float: "double", str: "string", bytes: "bytes"}
_KINDS |= {list: "array", dict: "map"}


def _branch(union: AvroType, value: Any) -> tuple[str, AvroType, Any]:
    """Return name and type of the branch that a value other than null has, and its value."""
    inner = _unwrapped(value)
    narrow = {"long": "int", "double": "float"}
    for name, branch in branches(union).items():
        if isinstance(value, tuple):
            if branch.name == value[0]:
                return name, branch, inner
        elif not branch.name:
            kind = _KINDS[type(inner)]
            if branch.base in (kind, narrow.get(kind)):
                return name, branch, inner
    raise AssertionError("fastavro decodes branches of the schema only")


def _conversion(avro: AvroType, type_: pa.DataType) -> Convert | None:
    """Return the conversion into a column; `None` if no value fits."""
    kind = avro.kind
    if kind in ("int", "long", "time-millis", "time-micros"):
        return _integers(1000 if kind == "time-millis" else 1, type_)
    if kind in ("float", "double"):
        is_wide = pa.types.is_float64(type_) or (kind == "float" and pa.types.is_float32(type_))
        return _same if is_wide else None
    if kind == "date":
        return (
            (lambda value: value if value in _DAYS else None) if pa.types.is_date32(type_) else None
        )
    if "timestamp" in kind:
        zone = None if kind.startswith("local") else "UTC"
        return _times(avro) if type_ == pa.timestamp("us", zone) else None
    if kind == "decimal":
        return _decimals(avro, type_) if pa.types.is_decimal(type_) else None
    accepts: dict[str, Callable[[pa.DataType], bool]] = {
        "boolean": pa.types.is_boolean,
        "string": pa.types.is_large_string,
        "enum": pa.types.is_large_string,
        "bytes": pa.types.is_large_binary,
        "fixed": lambda given: given == pa.binary(avro.size) or pa.types.is_large_binary(given),
    }
    return _same if kind in accepts and accepts[kind](type_) else None


def _same(value: Any) -> Any:
    return value


def _integers(factor: int, type_: pa.DataType) -> Convert | None:
    if pa.types.is_float64(type_):
        return lambda value: value * factor if value * factor in EXACT else None
    fitting = {pa.int32(): _INTS, pa.int64(): LONGS}.get(type_)
    if fitting is None:
        return None
    return lambda value: value * factor if value * factor in fitting else None


def _times(avro: AvroType) -> Convert:
    def convert(value: int) -> int | None:
        micros = _micros(avro, value)
        return micros if micros in _MICROSECONDS else None

    return convert


def _micros(avro: AvroType, value: int) -> int:
    return value * 1000 if avro.kind.endswith("millis") else value


def _decimals(avro: AvroType, type_: pa.Decimal128Type) -> Convert:
    def convert(value: bytes) -> Decimal | None:
        if len(value) > _DECIMAL_BYTES_MAX or avro.scale > type_.scale:
            return None
        decimal = _decimal(avro, value)
        whole = type_.precision - type_.scale
        return decimal if decimal.is_zero() or decimal.adjusted() < whole else None

    return convert


def _decimal(avro: AvroType, value: bytes) -> Decimal:
    unscaled = int.from_bytes(value, "big", signed=True)
    return Decimal(unscaled).scaleb(-avro.scale, _UNBOUNDED)


_BAD_BYTES = (EOFError, LookupError, ValueError, ArithmeticError, struct.error)
_ROOT, _FIELD = "lakelog_root", "value"


class AvroSchema:
    """A writer's schema.

    text: the schema. references: the texts of the schemas that it names, each after its own
    references. Raises `UnsupportedSchemaError` if the text is no Avro schema, or its values
    cannot be columns.
    """

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        try:
            texts = (*references, text)
            # By such keys fastavro marks schemas that it has parsed.
            schemas = [
                _without(json.loads(text), lambda key: key.startswith("__")) for text in texts
            ]
            # A record without logical types: the values of its field have the same bytes.
            plain = [_without(schema, lambda key: key == "logicalType") for schema in schemas]
            self._decoded = _parsed(plain, {})
            named: dict[str, Any] = {}
            root = _parsed(schemas, named)
            self._type = resolved(root["fields"][0]["type"], named)
        except (SchemaParseException, UnknownType, ValueError, LookupError, TypeError) as error:
            raise UnsupportedSchemaError(f"the Avro schema cannot be parsed: {error}") from None
        except RecursionError:
            raise UnsupportedSchemaError("the Avro schema has too many levels") from None

    @property
    def shape(self) -> Shape:
        """The columns of records; no fields for other values."""
        shape = self._type.shape()
        return shape if shape.kind == "struct" else Shape("struct")

    def reader(self, type_: pa.StructType) -> Reader:
        """Return the function that decodes a value for a column of this type."""
        fit = fit_avro(self._type, type_)

        def read(data: bytes) -> tuple[Any, Rescued]:
            rescued = Rescued()
            return fit(self._decode(data), "$", rescued), rescued

        return read

    def _decode(self, data: bytes) -> Any:
        source = io.BytesIO(data)
        try:
            record: Any = schemaless_reader(source, self._decoded, return_named_type=True)
        except _BAD_BYTES as error:
            detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise UnreadableValueError(f"its bytes do not fit the Avro schema ({detail})") from None
        left = len(data) - source.tell()
        if left:
            raise UnreadableValueError(f"it has {left} bytes after the value of its Avro schema")
        return record[_FIELD]


def _parsed(schemas: Sequence[Any], named: dict[str, Any]) -> Any:
    """Return the parsed record with the last schema; `named` gets all definitions."""
    *references, last = schemas
    for reference in references:
        parse_schema(reference, named)
    root = {"type": "record", "name": _ROOT, "fields": [{"name": _FIELD, "type": last}]}
    return parse_schema(root, named)


def _without(schema: Any, is_left_out: Callable[[str], bool]) -> Any:
    """Return the schema without some keys."""
    if isinstance(schema, dict):
        return {k: _without(v, is_left_out) for k, v in schema.items() if not is_left_out(k)}
    return [_without(part, is_left_out) for part in schema] if isinstance(schema, list) else schema
