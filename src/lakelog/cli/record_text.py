"""Records as text: format strings for people, JSON lines that lose nothing for programs.

Fields of a format string, which is otherwise copied with its backslash escapes:

    %t topic   %p partition   %o offset   %T timestamp (ms)   %D timestamp (ISO 8601)
    %k key     %v value       %h headers as name=value,...    %% a percent sign

Key and value are copied byte for byte; null is empty. In JSON, bytes that are not UTF-8 are base64,
and `key_encoding` and `value_encoding` say which, so that `produce --input-format jsonl` reads back
exactly what `consume -f json` wrote.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from lakelog.cli.failures import CliError
from lakelog.cli.moments import iso_utc

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{2}|.?)|([^%\\]+)", re.DOTALL)
Header = tuple[str, bytes | None]


class ConsumedRecord(Protocol):
    """What is printed of a record: the client's record has these attributes."""

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
    """A record to produce; a None of partition or timestamp leaves it to the producer."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


Formatter = Callable[[ConsumedRecord], bytes]

_FIELDS: dict[str, Formatter] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "D": lambda record: (iso_utc(record.timestamp) or "-").encode(),
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "h": lambda record: _headers_text(record.headers),
}


def formatter(form: str) -> Formatter:
    """A function from a record to its bytes, for `json`, `jsonl` or a format string."""
    if form in ("json", "jsonl"):
        return json_line
    parts = [_part(match) for match in _TOKEN.finditer(form)]
    if not any(callable(part) for part in parts):
        raise CliError(
            "LL0902", f"format '{form}' prints nothing of a record", "write json or '%o %k %v\\n'"
        )
    return lambda record: b"".join(
        part if isinstance(part, bytes) else part(record) for part in parts
    )


def _part(match: re.Match[str]) -> bytes | Formatter:
    field, escape, text = match.groups()
    if text is not None:
        return text.encode()
    if escape is not None:
        if len(escape) == 3:
            return bytes.fromhex(escape[1:])
        return _ESCAPES.get(escape, b"\\" + escape.encode())
    if field == "%":
        return b"%"
    if field not in _FIELDS:
        known = " ".join(f"%{name}" for name in _FIELDS)
        raise CliError("LL0902", f"unknown field '%{field}'", f"fields are {known} and %%")
    return _FIELDS[field]


def _headers_text(headers: Sequence[Header]) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in headers)


def json_line(record: ConsumedRecord) -> bytes:
    """One JSON object and a newline."""
    key, key_encoding = _text(record.key)
    value, value_encoding = _text(record.value)
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": iso_utc(record.timestamp),
        "timestamp_ms": record.timestamp,
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": [_header_fields(name, content) for name, content in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _header_fields(name: str, content: bytes | None) -> dict[str, str | None]:
    value, encoding = _text(content)
    return {"key": name, "value": value, "value_encoding": encoding}


def _text(data: bytes | None) -> tuple[str | None, str | None]:
    if data is None:
        return None, None
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def parse_json_line(line: bytes) -> InputRecord:
    """The record that a line describes; `ValueError` says what is wrong with it."""
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return InputRecord(
        key=_content(fields, "key"),
        value=_content(fields, "value"),
        headers=tuple(_parse_headers(fields.get("headers"))),
        partition=_whole(fields, "partition"),
        timestamp_ms=_whole(fields, "timestamp_ms"),
    )


def _parse_headers(value: object) -> list[Header]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [(name, _content(value, name)) for name in value]
    if not isinstance(value, list):
        raise ValueError("headers is neither a list nor an object")
    headers: list[Header] = []
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("key"), str):
            raise ValueError("a header has no key")
        headers.append((item["key"], _content(item, "value")))
    return headers


def _content(fields: dict[str, Any], name: str) -> bytes | None:
    """Text as UTF-8, base64 where the encoding says so, any other JSON value as JSON text."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).encode()
    if fields.get(f"{name}_encoding") != "base64":
        return value.encode()
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} is not base64: {error}") from None


def _whole(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{name} is not a whole number")
