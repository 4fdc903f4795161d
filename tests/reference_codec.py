"""The reference codec, with which tests compare the compiled one.

It iterates over the declaration field by field and checks every bound where it applies. It is about
ten times slower than `lakelog.wire.codec`, and accepts and rejects the same bytes. Read this module
to find out how a message is encoded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from lakelog.wire.primitives import (
    FIXED_FORMATS,
    MAX_REQUEST_ELEMENTS,
    MAX_STRING_BYTES,
    MAX_UNKNOWN_TAGS,
    WireError,
    cut_text,
    encode_uvarint,
    fixed_size,
)
from lakelog.wire.schema import Buffer, Message
from lakelog.wire.shapes import Field

M = TypeVar("M", bound=Message)


def decode(
    kind: type[M], buffer: Buffer, version: int, *, max_elements: int = MAX_REQUEST_ELEMENTS
) -> M:
    """Return the message in exactly `buffer`. Raises `WireError` like the compiled decoder."""
    reader = _Reader(memoryview(buffer), version, version in kind.__flexible__, max_elements)
    message: M = reader.struct(kind)
    if reader.left:
        raise WireError(f"{kind.__name__} v{version}: {reader.left} bytes left over")
    return message


def encode(message: Message, version: int) -> bytes:
    """Return the encoding, including records. Raises `WireError`."""
    writer = _Writer(version, version in type(message).__flexible__)
    return writer.struct(message)


class _Reader:
    def __init__(self, view: memoryview, version: int, flexible: bool, max_elements: int) -> None:
        self.view = view
        self.version = version
        self.flexible = flexible
        self.elements_left = max_elements

    @property
    def left(self) -> int:
        return len(self.view)

    def take(self, size: int) -> memoryview:
        if size > self.left:
            raise WireError(f"{size} bytes expected, {self.left} left")
        taken, self.view = self.view[:size], self.view[size:]
        return taken

    def fixed(self, type_name: str) -> Any:
        (value,) = struct.unpack(">" + FIXED_FORMATS[type_name], self.take(fixed_size(type_name)))
        return value

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                break
        else:
            raise WireError("a variable-length number of more than 5 bytes")
        if value > 0xFFFFFFFF:
            raise WireError("a variable-length number of more than 32 bits")
        return value

    def length(self, field: Field, type_name: str) -> int | None:
        """Read a length or a count; none for a null, if this version allows it."""
        length = self.uvarint() - 1 if self.flexible else self.fixed(type_name)
        if length == -1 and self.version in field.nullable:
            return None
        if length < 0:
            raise WireError(f"{field.name} is null or of length {length}")
        return int(length)

    def struct(self, kind: Any) -> Any:
        values = {}
        tagged = {}
        for field in kind.__fields__:
            if self.version not in field.versions:
                continue
            if field.tag is not None and self.flexible:
                tagged[field.tag] = field
            else:
                values[field.name] = self.field(field)
        if self.flexible:
            values.update(self.tagged_fields(tagged))
        return kind(**values)

    def tagged_fields(self, known: dict[int, Field]) -> dict[str, Any]:
        values = {}
        unknown = 0
        previous = -1
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            payload = self.take(self.uvarint())
            if tag <= previous:
                raise WireError(f"tagged field {tag} after {previous}")
            previous = tag
            if tag in known:
                values[known[tag].name] = self.tagged_field(known[tag], payload)
            else:
                unknown += 1
            if unknown > MAX_UNKNOWN_TAGS:
                raise WireError("too many unknown tagged fields")
        return values

    def tagged_field(self, field: Field, payload: memoryview) -> Any:
        """Read a value; a nullable struct begins with a varint here, and with an int8 elsewhere."""
        inner = _Reader(payload, self.version, self.flexible, self.elements_left)
        if field.struct is not None and not field.is_array and self.version in field.nullable:
            value = inner.struct(field.struct) if inner.uvarint() else None
        else:
            value = inner.field(field)
        self.elements_left = inner.elements_left
        if inner.left:
            raise WireError(f"{field.name}: {inner.left} bytes left over in a tagged field")
        return value

    def field(self, field: Field) -> Any:
        if field.is_array:
            return self.array(field)
        if field.struct is None:
            return self.value(field)
        if self.version in field.nullable and self.fixed("int8") < 0:
            return None
        return self.struct(field.struct)

    def array(self, field: Field) -> list[Any] | None:
        count = self.length(field, "int32")
        if count is None:
            return None
        self.elements_left -= count
        if count > self.left or self.elements_left < 0:
            raise WireError(f"{field.name} has a count of {count} elements")
        read: Callable[[], Any] = lambda: self.value(field, element=True)  # noqa: E731
        if field.struct is not None:
            read = lambda: self.struct(field.struct)  # noqa: E731
        return [read() for _ in range(count)]

    def value(self, field: Field, *, element: bool = False) -> Any:
        """Read a value that is neither an array nor a struct."""
        if field.type_name in FIXED_FORMATS:
            return self.fixed(field.type_name)
        if element:
            field = _element(field)
        is_string = field.type_name == "string"
        length = self.length(field, "int16" if is_string else "int32")
        if length is None:
            return None
        if not is_string:
            return self.take(length)
        if length > MAX_STRING_BYTES:
            raise WireError(f"{field.name} is a string of {length} bytes")
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"{field.name}: {error}") from error


class _Writer:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def length(self, length: int, type_name: str) -> bytes:
        if self.flexible:
            return encode_uvarint(length + 1)
        return struct.pack(">" + FIXED_FORMATS[type_name], length)

    def struct(self, value: Any) -> bytes:
        present = [field for field in value.__fields__ if self.version in field.versions]
        out = b""
        tagged = []
        for field in present:
            current = getattr(value, field.name)
            if field.tag is None or not self.flexible:
                out += self.field(field, current)
            elif current != field.new_default():
                tagged.append((field.tag, self.tagged_field(field, current)))
        if self.flexible:
            out += encode_uvarint(len(tagged))
            for tag, payload in sorted(tagged):
                out += encode_uvarint(tag) + encode_uvarint(len(payload)) + payload
        return out

    def tagged_field(self, field: Field, value: Any) -> bytes:
        if field.struct is not None and not field.is_array and self.version in field.nullable:
            return b"\x00" if value is None else b"\x01" + self.struct(value)
        return self.field(field, value)

    def field(self, field: Field, value: Any) -> bytes:
        if field.is_array:
            return self.array(field, value)
        if field.struct is None:
            return self.value(field, value)
        if self.version not in field.nullable:
            return self.struct(value)
        return b"\xff" if value is None else b"\x01" + self.struct(value)

    def array(self, field: Field, values: list[Any] | None) -> bytes:
        if values is None:
            return self.null(field, "int32")
        element = _element(field)
        items = [
            self.struct(value) if field.struct is not None else self.value(element, value)
            for value in values
        ]
        return self.length(len(values), "int32") + b"".join(items)

    def null(self, field: Field, type_name: str) -> bytes:
        if self.version not in field.nullable:
            raise WireError(f"{field.name} is null, which version {self.version} does not allow")
        return self.length(-1, type_name)

    def value(self, field: Field, value: Any) -> bytes:
        if field.type_name in FIXED_FORMATS:
            return struct.pack(">" + FIXED_FORMATS[field.type_name], value)
        type_name = "int16" if field.type_name == "string" else "int32"
        if value is None:
            return self.null(field, type_name)
        if field.is_cut:
            content = cut_text(value)
        else:
            content = value.encode() if field.type_name == "string" else bytes(value)
        return self.length(len(content), type_name) + content


def _element(field: Field) -> Field:
    """Return the field of one element of an array, which is never null."""
    element = Field(field.type_name, versions=field.versions, default=None)
    element.name = field.name
    return element
