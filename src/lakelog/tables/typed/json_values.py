"""JSON values as Python objects, without the limits and the losses of Python's parser. No I/O.

RFC 8259 allows numbers of any size, any depth and equal names in an object. Python's parser turns
1e400 into infinity, rejects integers of more than 4,300 digits and values of about 1,000 levels,
and keeps only the last of equal names. These parts become objects of their own here, so that the
rest of a value can be in columns.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

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
