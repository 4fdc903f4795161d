"""Types of a record's parts, checked when a producer could not buffer it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import SupportsIndex


def check_types(
    topic: object,
    value: object,
    key: object = None,
    headers: object = (),
    partition: object = None,
    timestamp_ms: object = None,
) -> None:
    """Raise `TypeError` with the expected type, if a part has another one."""
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, such as 'orders', not {_named(topic)}")
    _check("value", value)
    _check("key", key)
    if not isinstance(headers, Iterable):
        raise _wrong_header(headers)
    for header in headers:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise _wrong_header(header)
        if not isinstance(header[0], str):
            raise TypeError(f"the name of a header must be str, not {_named(header[0])}")
        _check(f"header {header[0]!r}", header[1])
    for what, number in (("partition", partition), ("timestamp_ms", timestamp_ms)):
        if number is not None and not isinstance(number, SupportsIndex):
            raise TypeError(f"{what} must be int or None, not {_named(number)}")


def _check(what: str, part: object) -> None:
    if isinstance(part, str):
        raise TypeError(f"{what} must be bytes or None, not str: use {_shown(part)}.encode()")
    if part is not None and not isinstance(part, bytes | bytearray | memoryview):
        raise TypeError(f"{what} must be bytes or None, not {_named(part)}")


def _wrong_header(given: object) -> TypeError:
    return TypeError(
        f"headers must be pairs of a name and a value, such as [('name', b'value')], not {given!r}"
    )


def _named(part: object) -> str:
    return type(part).__name__


def _shown(text: str) -> str:
    """Return a short text as Python writes it, a long one by its beginning."""
    return repr(text if len(text) <= 20 else f"{text[:20]}...")
