"""Converts JSON values into the columns `data` and `rescued`. No I/O.

A value fits a field only if nothing is lost: an integer beyond 64 bits does not fit `long`, and
an integer that a double cannot represent exactly does not fit `double`.

RFC 8259 allows numbers of any size, any depth and equal names in an object. Python's parser turns
1e400 into infinity, rejects integers of more than 4,300 digits and values of about 1,000 levels,
and keeps only the last of equal names. These parts become objects of their own here, so that the
rest of a value can be in columns.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakelog.tables.typed.shapes import LONGS

LEVELS_MAX = 100
"""Containers inside each other; deeper ones stay text."""

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
"""Texts and brackets. A text that is not closed is one token: it is searched for its end once."""
_LONG_NUMBER = re.compile(r"\d{640}")
"""No limit of Python for integers can be shorter (`sys.set_int_max_str_digits`)."""
_PLACE = "NaN"
"""Stands for a deeper container in a shortened text: JSON has no such literal."""


@dataclass(slots=True, frozen=True)
class RawJson:
    """A number that Python cannot hold, or a container that is too deep, as its text."""

    text: str


class Repeated(list[Any]):
    """All values of a name that an object has more than once, in their order."""


def read_json(data: bytes) -> Any:
    """Return the JSON value in the bytes. Raises `ValueError` if they are none."""
    text = data.decode(json.detect_encoding(data), "surrogatepass")
    try:
        value = _decoder(()).decode(text) if _LONG_NUMBER.search(text) else _DECODER.decode(text)
        if text.count("[") + text.count("{") <= LEVELS_MAX or _is_shallow(value):
            return value
    except RecursionError:
        pass
    return _read_deep(text)


def json_text(value: Any) -> str:
    """Return a value as compact JSON; `RawJson` becomes a string."""
    return json.dumps(value, separators=(",", ":"), default=_text_of)


def _text_of(value: Any) -> str:
    assert isinstance(value, RawJson)
    return value.text


def _finite(text: str) -> float | RawJson:
    number = float(text)
    return RawJson(text) if math.isinf(number) else number


def _integer(text: str) -> int | RawJson:
    try:
        return int(text)
    except ValueError:
        return RawJson(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    values: dict[str, Repeated] = {}
    for name, value in pairs:
        values.setdefault(name, Repeated()).append(value)
    return {name: every if len(every) > 1 else every[0] for name, every in values.items()}


def _decoder(deeper: Iterable[RawJson], *, long_integers: bool = True) -> json.JSONDecoder:
    """Return a parser of texts in which places stand for `deeper` containers, in their order."""
    rest = iter(deeper)

    def next_place(literal: str) -> RawJson:
        number = next(rest, None) if literal == _PLACE else None
        if number is None:
            raise ValueError(f"{literal} is no JSON")
        return number

    return json.JSONDecoder(
        parse_constant=next_place,
        parse_float=_finite,
        # Without a hook the parser is faster, and nearly all integers are short.
        parse_int=_integer if long_integers else None,
        object_pairs_hook=_object,
    )


_DECODER = _decoder((), long_integers=False)


def _is_shallow(value: Any) -> bool:
    """Return whether the value has at most `LEVELS_MAX` levels of containers."""
    level = _containers([value])
    for _ in range(LEVELS_MAX):
        if not level:
            return True
        level = [inner for container in level for inner in _containers(container)]
    return not level


def _containers(container: dict[str, Any] | list[Any]) -> list[dict[str, Any] | list[Any]]:
    values = container.values() if isinstance(container, dict) else container
    return [value for value in values if isinstance(value, dict | list)]


@dataclass(slots=True)
class _Shortened:
    """A container whose text is read up to `end`; deeper ones are places."""

    begin: int
    end: int
    pieces: list[str] = field(default_factory=list)
    deeper: list[RawJson] = field(default_factory=list)

    def value(self, text: str, end: int) -> Any:
        """Return the value of the text before `end`. Raises `ValueError`."""
        return _decoder(self.deeper).decode("".join((*self.pieces, text[self.end : end])))


def _read_deep(text: str) -> Any:
    """Return the value, in which containers below `LEVELS_MAX` levels are text.

    Every piece of `LEVELS_MAX` levels is parsed, from the deepest up, so the whole text is checked.
    """
    parts, depth = [_Shortened(0, 0)], 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > 1 and depth % LEVELS_MAX == 1:
                parts.append(_Shortened(token.start(), token.start()))
        elif token[0] in "]}":
            if depth > 1 and depth % LEVELS_MAX == 1:
                part, end = parts.pop(), token.end()
                part.value(text, end)
                outer = parts[-1]
                outer.pieces += text[outer.end : part.begin], _PLACE
                # The text of deeper parts would be copied once for each part around them.
                outer.deeper.append(RawJson(text[part.begin : end] if len(parts) == 1 else ""))
                outer.end = end
            depth -= 1
    if depth:
        raise ValueError("a container is not closed")
    return parts[0].value(text, len(text))


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
