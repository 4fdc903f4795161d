"""Durations and sizes with units, for configuration keys that are times or numbers of bytes.

The protocol and Kafka's files contain plain numbers only. `retention.ms=7d` and
`segment.bytes=1GiB` are converted to the unit of the key before they leave the program.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lakelog.base.config.key import ConfigError

_NS = {
    "w": 604_800_000_000_000,
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
}
_BINARY = {"EiB": 1 << 60, "PiB": 1 << 50, "TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20}
_BYTES = _BINARY | {"KiB": 1 << 10, "B": 1}
_DECIMAL = {"PB": 10**15, "TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3, "KB": 10**3}

_PART = re.compile(r"(\d{1,19})(?:\.(\d{1,9}))?([A-Za-z]+)", re.ASCII)
_PLAIN = re.compile(r"[+-]?\d+(?:\.\d+)?", re.ASCII)
_SHOWN_PARTS = 2
_ENDLESS_NS = 1000 * 365 * _NS["d"]
_ENDLESS_BYTES = 1 << 62


class _Unit(NamedTuple):
    """The unit of a key: `size` nanoseconds or bytes."""

    name: str
    size: int
    is_duration: bool


_BY_SUFFIX = (
    (("ms", "millis"), _Unit("milliseconds", _NS["ms"], True)),
    (("seconds", "secs"), _Unit("seconds", _NS["s"], True)),
    (("minutes",), _Unit("minutes", _NS["m"], True)),
    (("hours",), _Unit("hours", _NS["h"], True)),
    (
        ("bytes", "bytes.per.second", "bytes.between.snapshots", "buffer.size", "receive.size"),
        _Unit("bytes", 1, False),
    ),
)


def duration_ns(text: str) -> int:
    """Return the nanoseconds of `7d`, `1h30m`, `1.5h` or `500ms`.

    Raises `ValueError` for anything else, and for a plain number.
    """
    return _sum(text, _NS, "a duration; write 500ms, 10s, 1h30m or 7d")


def size_bytes(text: str) -> int:
    """Return the bytes of `1GiB`, `1.5MiB`, `500kB` or `77B`; GB is 10^9 and GiB is 2^30.

    Raises `ValueError` for anything else, and for a plain number.
    """
    return _sum(text, _BYTES | _DECIMAL, "a size; write 64KiB, 1MiB, 1GiB or 1GB")


def plain_value(key: str, text: str) -> str:
    """Return the value of a configuration key as a plain number in the unit of the key.

    A plain number, and the value of a key without a unit, stay unchanged. Raises `ConfigError` for
    a value that is not a multiple of the unit.
    """
    unit, text = _unit_of(key), text.strip()
    if unit is None or not text or _PLAIN.fullmatch(text):
        return text
    try:
        number = duration_ns(text) if unit.is_duration else size_bytes(text)
        if number % unit.size:
            raise ValueError(f"not a whole number of {unit.name}")
    except ValueError as error:
        raise ConfigError(key, text, str(error)) from None
    return str(number // unit.size)


def human_value(key: str, text: str | None) -> str | None:
    """Return `7d` for 604800000 of `retention.ms`, `~1MiB` for 1048588 of `max.message.bytes`.

    None for numbers that are as readable without a unit: small numbers, negative numbers, and
    numbers that mean "no limit". A value without `~` is exact.
    """
    unit = _unit_of(key)
    if unit is None or text is None or not text.isdecimal():
        return None
    number = int(text) * unit.size
    shown = _shown_duration(number) if unit.is_duration else _shown_size(number)
    return None if shown is None or re.sub("[a-zA-Z]+", "", shown) == text else shown


def _unit_of(key: str) -> _Unit | None:
    for suffixes, unit in _BY_SUFFIX:
        if key.endswith(tuple(f".{suffix}" for suffix in suffixes)):
            return unit
    return None


def _sum(text: str, units: dict[str, int], expected: str) -> int:
    total, at = 0, 0
    while at < len(text) or not text:
        match = _PART.match(text, at)
        unit = units.get(match[3]) if match else None
        if match is None or unit is None:
            raise ValueError(f"not {expected}")
        fraction = match[2] or "0"
        part, rest = divmod(int(fraction) * unit, 10 ** len(fraction))
        if rest:
            raise ValueError("too many decimals")
        total += int(match[1]) * unit + part
        at = match.end()
    return total


def _shown_duration(number: int) -> str | None:
    if not 0 < number < _ENDLESS_NS:
        return None
    parts: list[str] = []
    left = number
    for name, size in list(_NS.items())[1:]:
        count, rest = divmod(left, size)
        if count and len(parts) < _SHOWN_PARTS:
            parts.append(f"{count}{name}")
            left = rest
    return ("~" if left else "") + "".join(parts)


def _shown_size(number: int) -> str | None:
    if not 1 << 10 <= number < _ENDLESS_BYTES:
        return None
    name, size = next((name, size) for name, size in _BYTES.items() if number >= size)
    tenths = round(number * 10 / size)
    shown = str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"
    return ("" if tenths * size == number * 10 else "~") + shown + name
