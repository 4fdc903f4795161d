"""Records as text: a format string with fields and backslash escapes, or JSON lines.

    %t topic   %p partition   %o offset   %T timestamp (ms)   %D timestamp (ISO 8601)
    %k key     %v value       %h headers as name=value,...    %% %{ %} the character itself

Key and value are copied byte for byte; null is empty. A modifier in braces encodes them, and the
values of headers: %k{hex}, %v{base64}, %h{base64raw} (without padding).

`consume -f json` prints JSON lines, and `produce --input-format jsonl` reads them back. Bytes that
are not UTF-8 are written as base64; `key_encoding` and `value_encoding` state the encoding. Input
is strict, because a guess would store other data: unknown and repeated fields are errors, and so is
a line without `value`, since a null value is a tombstone. `topic` and `offset` state where a record
was read and are ignored; `partition` is used with --keep-partitions only.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lakelog.cli.failures import CliError, suggestion
from lakelog.cli.positions import iso_utc, parse_moment_ms

if TYPE_CHECKING:
    from lakelog.client.consumer import ConsumerRecord

_CONTENT = ("key", "key_encoding", "value", "value_encoding")
_JSON_FIELDS = ("topic", "partition", "offset", "timestamp", "timestamp_ms", *_CONTENT, "headers")
_HEADER_FIELDS = ("key", "value", "value_encoding")
_ENCODINGS = ("utf-8", "base64")


def json_line(record: ConsumerRecord) -> bytes:
    """Return a record as a JSON object with a newline."""
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
    """Return the record of a line. Raises `ValueError` with the name of an invalid field."""
    fields = parse_object(line)
    _check_fields(fields, _JSON_FIELDS)
    if "value" not in fields:
        raise ValueError("field 'value' is missing; \"value\": null writes a tombstone")
    return InputRecord(
        key=_content(fields, "key"),
        value=_content(fields, "value"),
        headers=tuple(_parse_headers(fields.get("headers"))),
        partition=_whole(fields, "partition"),
        timestamp_ms=_timestamp_ms(fields),
    )


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the fields of a JSON object. Raises `ValueError`, also for repeated names."""
    try:
        fields = json.loads(line.decode("utf-8-sig"), object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields


def json_text(value: object) -> bytes:
    """Return a JSON value as text. Raises `ValueError` for numbers that JSON lacks (NaN, 1e999)."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        again = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field '{again}' appears twice")
    return fields


def _check_fields(fields: Iterable[str], allowed: tuple[str, ...], what: str = "") -> None:
    for name in fields:
        if name not in allowed:
            hint = suggestion(name, allowed) or f"fields are {', '.join(allowed)}"
            raise ValueError(f"unknown field '{name}'{what}; {hint}")


def _parse_headers(value: object) -> list[Header]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [_header(name, _decoded(content, None, name)) for name, content in value.items()]
    if not isinstance(value, list):
        raise ValueError("headers must be a list or an object")
    headers: list[Header] = []
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("key"), str):
            raise ValueError('a header must be {"key": "...", "value": "..."}')
        _check_fields(item, _HEADER_FIELDS, " of a header")
        if "value" not in item:
            raise ValueError(f"header '{item['key']}' has no value; write null for a null value")
        headers.append(_header(item["key"], _content(item, "value")))
    return headers


def _header(name: str, value: bytes | None) -> Header:
    name.encode()  # a lone surrogate cannot be encoded
    return name, value


def _content(fields: Mapping[str, Any], name: str) -> bytes | None:
    return _decoded(fields.get(name), fields.get(f"{name}_encoding"), name)


def _decoded(value: object, encoding: object, name: str) -> bytes | None:
    """Return the bytes of a text (UTF-8, or base64 by `encoding`) or of another value as JSON."""
    if encoding is not None and encoding not in _ENCODINGS:
        raise ValueError(f"encoding of {name} is {encoding!r}, not utf-8 or base64")
    if value is None:
        return None
    if encoding == "base64":
        if not isinstance(value, str):
            raise ValueError(f"{name} is base64 but not a string")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"{name} is not base64: {error}") from None
    return value.encode() if isinstance(value, str) else json_text(value)


def _timestamp_ms(fields: Mapping[str, Any]) -> int | None:
    """Return `timestamp_ms`, or the ISO 8601 text `timestamp` in milliseconds since the epoch."""
    number, text = _whole(fields, "timestamp_ms"), fields.get("timestamp")
    if number is not None or text is None:
        return number
    if not isinstance(text, str) or not text[:1].isdigit():
        raise ValueError("timestamp is not ISO 8601, such as 2026-01-31T09:00:00Z")
    try:
        return parse_moment_ms(text, 0)
    except CliError as error:
        raise ValueError(f"timestamp: {error.message}") from None


def _whole(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{name} is not a whole number")


_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(
    r"%([A-Za-z])\{([^{}]*)\}|%([A-Za-z]\{|.?)|\\(x[0-9A-Fa-f]{2}|.?)|([^%\\]+)", re.DOTALL
)
_LITERALS = ("%", "{", "}")
Header = tuple[str, bytes | None]


class InputRecord(NamedTuple):
    """A record to produce. The producer sets a partition or timestamp of `None`."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


Formatter = Callable[["ConsumerRecord"], bytes]
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
