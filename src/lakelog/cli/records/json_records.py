"""Records as JSON lines: what `consume -f json` prints, `produce --input-format jsonl` reads back.

Bytes that are not UTF-8 are written as base64; `key_encoding` and `value_encoding` state the
encoding. Input is strict, because a guess would store other data: unknown and repeated fields are
errors, and so is a line without `value`, since a null value is a tombstone. `topic` and `offset`
state where a record was read and are ignored; `partition` is used with --keep-partitions only.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any

from lakelog.cli.failures import CliError, suggestion
from lakelog.cli.moments import iso_utc, parse_moment_ms
from lakelog.cli.records.record_text import ConsumedRecord, Header, InputRecord

_CONTENT = ("key", "key_encoding", "value", "value_encoding")
_FIELDS = ("topic", "partition", "offset", "timestamp", "timestamp_ms", *_CONTENT, "headers")
_HEADER_FIELDS = ("key", "value", "value_encoding")
_ENCODINGS = ("utf-8", "base64")


def json_line(record: ConsumedRecord) -> bytes:
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
    _check_fields(fields, _FIELDS)
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
        return [_header(name, _encoded(content, None, name)) for name, content in value.items()]
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
    return _encoded(fields.get(name), fields.get(f"{name}_encoding"), name)


def _encoded(value: object, encoding: object, name: str) -> bytes | None:
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
