"""Finds the id of the schema of a key or value. No I/O.

Serializers put it before the data (byte 0 and the id in four bytes, or byte 1 and a GUID in 16
bytes), or in the same form into a record header, and then the data has no prefix.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from lakelog.tables.registry.errors import UnreadableValueError

SchemaId = int | UUID
VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"

_ID, _GUID = 0, 1
_ID_END, _GUID_END = 5, 17


def split(data: bytes, header: bytes | None = None) -> tuple[SchemaId, bytes]:
    """Return the id of the schema and the data without it.

    header: the value of the header with the id, if the record has one; it takes precedence.
    Raises `UnreadableValueError`.
    """
    if header is None:
        schema_id, end = _read(data, "the value")
        return schema_id, data[end:]
    schema_id, end = _read(header, "the header with the schema id")
    if end != len(header):
        raise UnreadableValueError("the header with the schema id has bytes after the id")
    return schema_id, data


def header_in(headers: list[dict[str, Any]] | None, name: str) -> bytes | None:
    """Return the value of the last header of this name, as Kafka's `lastHeader`; `None` without.

    headers: of one record, as rows of Arrow or Spark: with the fields `key` and `value`.
    """
    values = [header["value"] for header in headers or () if header["key"] == name]
    return bytes(values[-1] or b"") if values else None


def _read(data: bytes, what: str) -> tuple[SchemaId, int]:
    """Return the id at the start of `data`, and where it ends."""
    first = data[0] if data else None
    if first == _ID and len(data) >= _ID_END:
        return int.from_bytes(data[1:_ID_END], "big"), _ID_END
    if first == _GUID and len(data) >= _GUID_END:
        return UUID(bytes=bytes(data[1:_GUID_END])), _GUID_END
    if first in (_ID, _GUID):
        raise UnreadableValueError(f"{what} ends within the schema id")
    begins = f"begins with byte {first}" if data else "is empty"
    raise UnreadableValueError(
        f"{what} {begins}, not with a schema id (byte 0 and 4 bytes, or byte 1 and a GUID)"
    )
