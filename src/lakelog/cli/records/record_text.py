"""Formats records by a format string with fields and backslash escapes.

    %t topic   %p partition   %o offset   %T timestamp (ms)   %D timestamp (ISO 8601)
    %k key     %v value       %h headers as name=value,...    %% %{ %} the character itself

Key and value are copied byte for byte; null is empty. A modifier in braces encodes them, and the
values of headers: %k{hex}, %v{base64}, %h{base64raw} (without padding).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from lakelog.cli.failures import CliError
from lakelog.cli.moments import iso_utc

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(
    r"%([A-Za-z])\{([^{}]*)\}|%([A-Za-z]\{|.?)|\\(x[0-9A-Fa-f]{2}|.?)|([^%\\]+)", re.DOTALL
)
_LITERALS = ("%", "{", "}")
Header = tuple[str, bytes | None]


class ConsumedRecord(Protocol):
    """The part of the client's record that is printed."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...


class InputRecord(NamedTuple):
    """A record to produce. The producer sets a partition or timestamp of `None`."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


Formatter = Callable[[ConsumedRecord], bytes]
Encoder = Callable[[bytes], bytes]

_FIELDS: Mapping[str, Formatter] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "D": lambda record: (iso_utc(record.timestamp) or "-").encode(),
}
_CONTENTS: Mapping[str, Callable[[Encoder], Formatter]] = {
    "k": lambda encode: lambda record: encode(record.key or b""),
    "v": lambda encode: lambda record: encode(record.value or b""),
    "s": lambda encode: lambda record: encode(record.value or b""),
    "h": lambda encode: lambda record: _headers_text(record.headers, encode),
}
_ENCODERS: Mapping[str, Encoder] = {
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
    "base64raw": lambda data: base64.b64encode(data).rstrip(b"="),
}


def formatter(form: str) -> Formatter:
    """Return a function from a record to its bytes.

    Raises `CliError` for an unknown field or modifier, and for a format without fields.
    """
    parts = [_part(match) for match in _TOKEN.finditer(form)]
    if not any(callable(part) for part in parts):
        raise CliError(
            "LL0902",
            f"format '{form}' contains no field of a record",
            "write json or '%o %k %v\\n'",
        )
    return lambda record: b"".join(
        part if isinstance(part, bytes) else part(record) for part in parts
    )


def _part(match: re.Match[str]) -> bytes | Formatter:
    encoded, modifier, field, escape, text = match.groups()
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    if escape is not None:
        if len(escape) == 3:
            return bytes.fromhex(escape[1:])
        return _ESCAPES.get(escape, b"\\" + escape.encode())
    if encoded is not None:
        return _encoded(encoded, modifier)
    if field in _LITERALS:
        return field.encode()
    if field[1:]:
        raise CliError("LL0902", f"'%{field}' has no closing brace", f"%{field[0]}%{{ prints one")
    return _field(field)


def _field(name: str) -> Formatter:
    if name in _CONTENTS:
        return _CONTENTS[name](bytes)
    if name not in _FIELDS:
        names = " ".join(f"%{name}" for name in [*_FIELDS, *_CONTENTS])
        raise CliError("LL0902", f"unknown field '%{name}'", f"fields are {names} and %%")
    return _FIELDS[name]


def _encoded(name: str, modifier: str) -> Formatter:
    _field(name)
    if name not in _CONTENTS:
        raise CliError("LL0902", f"'%{name}' takes no modifier", "%k, %v and %h do")
    if modifier not in _ENCODERS:
        modifiers = ", ".join(f"{{{modifier}}}" for modifier in _ENCODERS)
        hint = f"modifiers are {modifiers}; %{name}%{{ prints a brace"
        raise CliError("LL0902", f"unknown modifier '{{{modifier}}}' of '%{name}'", hint)
    return _CONTENTS[name](_ENCODERS[modifier])


def _headers_text(headers: Sequence[Header], encode: Encoder) -> bytes:
    return b",".join(name.encode() + b"=" + encode(value or b"") for name, value in headers)
