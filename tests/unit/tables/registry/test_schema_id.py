from __future__ import annotations

from uuid import UUID

import pytest

from lakelog.tables.registry.errors import UnreadableValueError
from lakelog.tables.registry.schema_id import VALUE_HEADER, header_in, split

GUID = UUID(int=0x0102030405060708090A0B0C0D0E0F10)


def test_an_id_or_a_guid_is_before_the_data() -> None:
    assert split(b"\0\0\0\1\7rest") == (263, b"rest")
    assert split(b"\0\0\0\0\7") == (7, b"")
    assert split(b"\1" + GUID.bytes + b"rest") == (GUID, b"rest")


def test_the_header_takes_precedence_and_the_data_is_whole() -> None:
    assert split(b"\0\0\0\0\1", b"\0\0\0\0\2") == (2, b"\0\0\0\0\1")
    assert split(b"", b"\1" + GUID.bytes) == (GUID, b"")


@pytest.mark.parametrize(
    ("data", "header", "reason"),
    [
        (b"", None, "the value is empty, not with a schema id"),
        (b"{}", None, "the value begins with byte 123, not with a schema id"),
        (b"\0\0\0", None, "the value ends within the schema id"),
        (b"\1" + b"x" * 15, None, "the value ends within the schema id"),
        (b"\0\0\0\0\1", b"", "the header with the schema id is empty"),
        (b"", b"\0\0\0\0\1x", "has bytes after the id"),
    ],
)
def test_data_without_an_id_is_an_error(data: bytes, header: bytes | None, reason: str) -> None:
    with pytest.raises(UnreadableValueError, match=reason):
        split(data, header)


def test_the_last_header_of_the_name_counts() -> None:
    rows = [
        {"key": VALUE_HEADER, "value": b"a"},
        {"key": "other", "value": b"b"},
        {"key": VALUE_HEADER, "value": bytearray(b"c")},
    ]
    assert header_in(rows, VALUE_HEADER) == b"c"
    assert header_in(rows[1:2], VALUE_HEADER) is None
    assert header_in(None, VALUE_HEADER) is None
    assert header_in([{"key": VALUE_HEADER, "value": None}], VALUE_HEADER) == b""
