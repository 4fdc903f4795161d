"""Finds the error codes in a response of any API, by the shape that its class declares."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from lakelog.wire.schema import Struct

_FIELD = "error_code"


class _Plan(NamedTuple):
    has_code: bool
    within: tuple[str, ...]
    """Fields whose elements may hold a code."""


def codes_in(message: Struct) -> Iterator[int]:
    """Yield the codes that are not 0 (NONE), at any depth and in any order."""
    plan = _plan(type(message))
    if plan.has_code and (code := getattr(message, _FIELD)):
        yield code
    for name in plan.within:
        for entry in getattr(message, name) or ():
            yield from codes_in(entry)


@cache
def _plan(kind: type[Struct]) -> _Plan:
    within = (
        field.name
        for field in kind.__fields__
        if field.is_array and field.struct is not None and _has_codes(field.struct)
    )
    return _Plan(any(field.name == _FIELD for field in kind.__fields__), tuple(within))


def _has_codes(kind: type[Struct]) -> bool:
    plan = _plan(kind)
    return plan.has_code or bool(plan.within)
