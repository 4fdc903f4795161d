"""Converts values of one Avro type into a column of one Arrow type. No I/O.

As for JSON, a value fits only if nothing is lost; what does not fit goes into `Rescued`. fastavro
decodes values without their logical types: dates and times are numbers.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from lakelog.tables.registry.avro_types import AvroType, branches
from lakelog.tables.typed.fitting import EXACT, Fit, Rescued, step
from lakelog.tables.typed.shapes import LONGS

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
        name, branch, found = _branch(avro, value)
        inner = plain(branch, found)
        return inner if len(branches(avro)) == 1 else {name: inner}
    if avro.kind == "record":
        return {name: plain(each, value[name]) for name, each in avro.fields}
    if avro.kind == "array":
        return [plain(avro.parts[0], each) for each in value]
    if avro.kind == "map":
        return {key: plain(avro.parts[0], each) for key, each in value.items()}
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
        found = None if value is None else convert(value)
        if found is None and value is not None:
            rescued[path] = plain(avro, value)
        return found

    return fit


def _fit_record(avro: AvroType, type_: pa.StructType) -> Fit:
    types = {each.name: each.type for each in type_}
    fits = [(name, step(name), fit_avro(each, types.get(name))) for name, each in avro.fields]

    def fit(value: Any, path: str, rescued: Rescued) -> Any:
        if value is None:
            return None
        return {name: each(value[name], path + part, rescued) for name, part, each in fits}

    return fit


def _fit_array(avro: AvroType, type_: pa.LargeListType) -> Fit:
    item = fit_avro(avro.parts[0], type_.value_type)

    def fit(value: Any, path: str, rescued: Rescued) -> Any:
        if value is None:
            return None
        return [item(each, f"{path}[{at}]", rescued) for at, each in enumerate(value)]

    return fit


def _fit_map(avro: AvroType, type_: pa.MapType) -> Fit:
    item = fit_avro(avro.parts[0], type_.item_type)

    def fit(value: Any, path: str, rescued: Rescued) -> Any:
        if value is None:
            return None
        return [(key, item(each, path + step(key), rescued)) for key, each in value.items()]

    return fit


def _fit_union(avro: AvroType, type_: pa.DataType) -> Fit:
    """Return the function for a union: one branch has its own column, several are a struct."""
    found = branches(avro)
    if len(found) == 1:
        (branch,) = found.values()
        only = fit_avro(branch, type_)
        return lambda value, path, rescued: only(_unwrapped(value), path, rescued)
    if not pa.types.is_struct(type_):
        return _rescue(avro)
    types = {each.name: each.type for each in type_}
    fits = {name: fit_avro(each, types.get(name)) for name, each in found.items()}

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
    for name, each in branches(union).items():
        if isinstance(value, tuple):
            if each.name == value[0]:
                return name, each, inner
        elif not each.name:
            kind = _KINDS[type(inner)]
            if each.base in (kind, narrow.get(kind)):
                return name, each, inner
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
        "fixed": lambda found: found == pa.binary(avro.size) or pa.types.is_large_binary(found),
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
        found = _micros(avro, value)
        return found if found in _MICROSECONDS else None

    return convert


def _micros(avro: AvroType, value: int) -> int:
    return value * 1000 if avro.kind.endswith("millis") else value


def _decimals(avro: AvroType, type_: pa.Decimal128Type) -> Convert:
    def convert(value: bytes) -> Decimal | None:
        if len(value) > _DECIMAL_BYTES_MAX or avro.scale > type_.scale:
            return None
        found = _decimal(avro, value)
        whole = type_.precision - type_.scale
        return found if found.is_zero() or found.adjusted() < whole else None

    return convert


def _decimal(avro: AvroType, value: bytes) -> Decimal:
    unscaled = int.from_bytes(value, "big", signed=True)
    return Decimal(unscaled).scaleb(-avro.scale, _UNBOUNDED)
