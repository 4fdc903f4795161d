"""Converts JSON values into the columns `data` and `rescued`. No I/O.

A value fits a field only if nothing is lost: an integer beyond 64 bits does not fit `long`, and
an integer that a double cannot represent exactly does not fit `double`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from lakelog.tables.typed.json_values import Repeated, json_text, read_json
from lakelog.tables.typed.shapes import LONGS

Rescued = dict[str, Any]
Fit = Callable[[Any, str, Rescued], Any]
"""Returns a value for a column. The parts that do not fit go into `Rescued` by their paths."""

Reader = Callable[[bytes], tuple[Any, Rescued]]
"""Converts the bytes of one value into a value for the column `data`, and what does not fit it."""

EXACT = range(-(1 << 53), (1 << 53) + 1)
_PLAIN = re.compile(r"[^\W\d]\w*")
_MAGIC, _PREFIX_BYTES = b"\0", 5
NO_JSON = object()


def parsed(value: bytes | None) -> Any:
    """Return the JSON value in the bytes, `NO_JSON` if they are none.

    The prefix of serializers that use a schema registry (a zero byte, and the id of the schema in
    four bytes) is skipped.
    """
    if value is None:
        return NO_JSON
    if value.startswith(_MAGIC):
        value = value[_PREFIX_BYTES:]
    return parsed_json(value)


def parsed_json(value: bytes) -> Any:
    """Return the JSON value in the bytes, `NO_JSON` if they are none."""
    try:
        return read_json(value)
    except ValueError:
        return NO_JSON


def fitted(values: Iterable[bytes | None], type_: pa.StructType) -> tuple[pa.Array, pa.Array]:
    """Return the columns `data`, of the given type, and `rescued`.

    Both are null for a value that is not JSON. `rescued` is null if everything fits. Paths are as
    in JSONPath: `$.a.b[2]`, and `$` for a value that is no object.
    """
    fit = _fit_struct(type_)
    pairs = [_pair(parsed(value), fit) for value in values]
    data, rescued = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.array(data, type_), pa.array(rescued, pa.large_string())


def _pair(value: Any, fit: Fit) -> tuple[Any, str | None]:
    if value is NO_JSON:
        return None, None
    rescued = Rescued()
    return fit(value, "$", rescued), rescued_text(rescued)


def rescued_text(rescued: Rescued) -> str | None:
    """Return the value of the column `rescued`; `None` if everything fits."""
    return json_text(rescued) if rescued else None


def json_reader(type_: pa.StructType) -> Reader:
    """Return the function that converts a JSON value; it raises `ValueError` for other values."""
    fit = _fit_struct(type_)

    def read(data: bytes) -> tuple[Any, Rescued]:
        value, rescued = parsed_json(data), Rescued()
        if value is NO_JSON:
            raise ValueError("it is not JSON")
        return fit(value, "$", rescued), rescued

    return read


def _fit_of(type_: pa.DataType) -> Fit:
    if pa.types.is_struct(type_):
        return _fit_struct(type_)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _fit_list(_fit_of(type_.value_type))
    if pa.types.is_boolean(type_):
        return _fit_scalar(lambda value: isinstance(value, bool))
    if pa.types.is_int64(type_):
        return _fit_scalar(lambda value: _is_integer(value) and value in LONGS)
    if pa.types.is_float64(type_):
        return _fit_scalar(
            lambda value: isinstance(value, float) or (_is_integer(value) and value in EXACT)
        )
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _fit_scalar(lambda value: isinstance(value, str) and _is_unicode(value))
    # Another program gave the field a type that JSON has no values of.
    return _fit_scalar(lambda _: False)


def _fit_scalar(fits: Callable[[Any], bool]) -> Fit:
    def fit(value: Any, path: str, rescued: Rescued) -> Any:
        if value is None or fits(value):
            return value
        rescued[path] = value
        return None

    return fit


def _fit_list(element: Fit) -> Fit:
    def fit(value: Any, path: str, rescued: Rescued) -> Any:
        if isinstance(value, list) and not isinstance(value, Repeated):
            return [element(item, f"{path}[{at}]", rescued) for at, item in enumerate(value)]
        if value is not None:
            rescued[path] = value
        return None

    return fit


def _fit_struct(type_: pa.StructType) -> Fit:
    fits = {field.name: _fit_of(field.type) for field in type_}

    def fit(value: Any, path: str, rescued: Rescued) -> Any:
        if not isinstance(value, dict):
            if value is not None:
                rescued[path] = value
            return None
        struct = {}
        for name, item in value.items():
            item_path = path + step(name)
            if name in fits:
                struct[name] = fits[name](item, item_path, rescued)
            else:
                rescued[item_path] = item
        return struct

    return fit


def step(name: str) -> str:
    return f".{name}" if _PLAIN.fullmatch(name) else f"[{json.dumps(name)}]"


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_unicode(text: str) -> bool:
    """Return whether a text can be in a column: JSON may have halves of surrogate pairs."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
