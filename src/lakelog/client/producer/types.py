"""Types of a record's parts, checked when a producer could not buffer it."""

from __future__ import annotations

from collections.abc import Iterable


def check_types(value: object, key: object = None, headers: object = ()) -> None:
    """Raise `TypeError` with the expected type, if a part has another one."""
    _check("value", value)
    _check("key", key)
    if not isinstance(headers, Iterable):
        raise _wrong_headers(headers)
    for header in headers.items() if isinstance(headers, dict) else headers:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise _wrong_headers(headers)
        if not isinstance(header[0], str):
            raise TypeError(f"the name of a header must be str, not {_named(header[0])}")
        _check(f"header {header[0]!r}", header[1])
    if isinstance(headers, dict):
        raise _wrong_headers(headers)


def _check(what: str, part: object) -> None:
    if isinstance(part, str):
        raise TypeError(f"{what} must be bytes or None, not str: use {_shown(part)}.encode()")
    if part is not None and not isinstance(part, bytes | bytearray | memoryview):
        raise TypeError(f"{what} must be bytes or None, not {_named(part)}")


def _wrong_headers(headers: object) -> TypeError:
    return TypeError(
        f"headers must be pairs of a name and a value, such as [('name', b'value')], not "
        f"{_named(headers)}"
    )


def _named(part: object) -> str:
    return type(part).__name__


def _shown(text: str) -> str:
    """Return a short text as Python writes it, a long one by its beginning."""
    return repr(text if len(text) <= 20 else f"{text[:20]}...")
