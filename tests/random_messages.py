"""Seeded random messages of any declared class and version, for round trips and oracles."""

from __future__ import annotations

from random import Random
from typing import Any

from lakelog.wire.shapes import Field

_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_TEXTS = ("", "a", "topic-1", "grüße", "日本語", "😀", "x" * 126, "y" * 127, "z" * 300)
_SIZES = (0, 1, 16, 126, 127, 128, 1000, 20_000)


def random_message(kind: Any, version: int, random: Random) -> Any:
    """Only the fields that the version has are set; the others keep their defaults."""
    values = {
        field.name: _field(field, version, random)
        for field in kind.__fields__
        if version in field.versions and not (field.tag is not None and random.random() < 0.4)
    }
    return kind(**values)


def _field(field: Field, version: int, random: Random) -> Any:
    if version in field.nullable and random.random() < 0.3:
        return None
    if not field.is_array:
        return _value(field, version, random)
    count = random.choice((0, 1, 1, 2, 3, 130 if field.struct is None else 4))
    return [_value(field, version, random) for _ in range(count)]


def _value(field: Field, version: int, random: Random) -> Any:
    if field.struct is not None:
        return random_message(field.struct, version, random)
    if field.type_name in _RANGES:
        lowest, highest = _RANGES[field.type_name]
        return random.choice((lowest, highest, 0, 1, random.randint(lowest, highest)))
    if field.type_name == "bool":
        return random.random() < 0.5
    if field.type_name == "float64":
        return random.uniform(-1e9, 1e9)
    if field.type_name == "string":
        return random.choice(_TEXTS)
    if field.type_name == "uuid":
        return random.choice((bytes(16), random.randbytes(16)))
    return random.randbytes(random.choice(_SIZES))
