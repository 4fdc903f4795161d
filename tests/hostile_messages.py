"""The lengths and counts of a message, found from its declaration, with wrong values for each.

The bytes before each place are the smallest message that reaches it: one element in
each array around it, everything else empty or null. They are written here from the layouts in
`lakelog.wire.primitives`, by nothing that the codec is made of.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lakelog.wire.primitives import FIXED_FORMATS, encode_uvarint, fixed_size
from lakelog.wire.shapes import Field

_TAG_UNKNOWN = 1_000


@dataclass(frozen=True)
class Place:
    """One count or length. `kind` is array, string, bytes, tags or tag size; `smallest` the fewest
    bytes of an element."""

    name: str
    kind: str
    before: bytes
    smallest: int
    flexible: bool

    def saying(self, number: int) -> bytes:
        """The message up to and with this place."""
        if self.kind == "tags":
            return self.before + encode_uvarint(number)
        if self.kind == "tag size":
            return self.before + b"\x01" + encode_uvarint(_TAG_UNKNOWN) + encode_uvarint(number)
        if self.flexible:
            return self.before + encode_uvarint(number + 1)
        return self.before + struct.pack(">h" if self.kind == "string" else ">i", number)

    def lies(self, left: int) -> Iterator[bytes]:
        """Yield impossible values before `left` more bytes: too large, negative, just too large."""
        rest = bytes(left)
        if self.kind == "string" and not self.flexible:
            numbers = [(1 << 15) - 1, -2, left + 1]
        elif self.kind in ("tags", "tag size") or self.flexible:
            numbers = [(1 << 31) - 1, (1 << 32) - 2, left // self.smallest + 1]
        else:
            numbers = [(1 << 31) - 1, -2, left // self.smallest + 1]
        for number in numbers:
            yield self.saying(number) + rest
        if self.flexible:
            yield self.saying(0)[:-1] + b"\xff" * 9 + b"\x01" + rest


def places(kind: Any, version: int) -> Iterator[Place]:
    """All of a message class in one of its versions."""
    yield from _Walk(version, version in kind.__flexible__).struct(kind, b"", kind.__name__)


def smallest_message(kind: Any, version: int) -> bytes:
    return _Walk(version, version in kind.__flexible__).smallest_struct(kind)


class _Walk:
    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible

    def struct(self, kind: Any, before: bytes, name: str) -> Iterator[Place]:
        for field in self._plain(kind):
            yield from self._field(field, before, field.name)
            before += self._smallest(field)
        if not self._flexible:
            return
        yield Place(name, "tags", before, 2, True)
        yield Place(name, "tag size", before, 1, True)
        for field in kind.__fields__:
            if self._is_tagged(field):
                head = encode_uvarint(1) + encode_uvarint(field.tag) + encode_uvarint(1 << 20)
                yield from self._field(field, before + head, field.name)

    def _field(self, field: Field, before: bytes, name: str) -> Iterator[Place]:
        if field.is_array:
            smallest = max(1, len(self._smallest_element(field)))
            array = Place(name, "array", before, smallest, self._flexible)
            yield array
            yield from self._content(field, array.saying(1), name)
        elif field.struct is not None and self._version in field.nullable:
            yield from self._content(field, before + b"\x01", name)
        else:
            yield from self._content(field, before, name)

    def _content(self, field: Field, before: bytes, name: str) -> Iterator[Place]:
        if field.struct is not None:
            yield from self.struct(field.struct, before, name)
        elif field.type_name not in FIXED_FORMATS:
            kind = "string" if field.type_name == "string" else "bytes"
            yield Place(name, kind, before, 1, self._flexible)

    def smallest_struct(self, kind: Any) -> bytes:
        plain = b"".join(map(self._smallest, self._plain(kind)))
        return plain + b"\x00" * self._flexible

    def _smallest(self, field: Field) -> bytes:
        if field.is_array:
            return b"\x01" if self._flexible else bytes(4)
        if field.struct is not None and self._version in field.nullable:
            return b"\xff"
        return self._smallest_element(field)

    def _smallest_element(self, field: Field) -> bytes:
        if field.struct is not None:
            return self.smallest_struct(field.struct)
        if field.type_name in FIXED_FORMATS:
            return bytes(fixed_size(field.type_name))
        if self._flexible:
            return b"\x01"
        return bytes(2 if field.type_name == "string" else 4)

    def _plain(self, kind: Any) -> list[Field]:
        return [
            field
            for field in kind.__fields__
            if self._version in field.versions and not self._is_tagged(field)
        ]

    def _is_tagged(self, field: Field) -> bool:
        return self._flexible and field.tag is not None and self._version in field.versions
