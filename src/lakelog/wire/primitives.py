"""The primitive types of the protocol, and the limits of every decoder.

```
int8 int16 int32 int64 uint16 uint32 float64   big-endian
bool                                           1 byte, any value but 0 is true
uuid                                           16 bytes; all zero stands for "none"
uvarint                                        7 bits a byte, low bits first, at most 5 bytes
                     flexible versions         older versions
string               uvarint(length + 1)       int16 length            0 or -1 is null
bytes, records       uvarint(length + 1)       int32 length            0 or -1 is null
array                uvarint(count + 1)        int32 count             0 or -1 is null
struct               ends with tagged fields   nothing more
tagged fields        uvarint(count), then (uvarint tag, uvarint size, payload), tags ascending
```
Source: the Kafka protocol guide and KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence


class WireError(ValueError):
    """Malformed bytes, or values that a message cannot carry.

    A decoder raises it for any malformed input of a peer. An encoder raises it for a value out of
    range, for a null that the version does not allow, and for an unknown version.
    """


View = memoryview

MAX_REQUEST_ELEMENTS = 100_000
"""Limit for the elements of all arrays of one request together."""

MAX_RESPONSE_ELEMENTS = 10_000_000
"""Limit for the elements of all arrays of one response; a client chose the broker and trusts it."""

MAX_UNKNOWN_TAGS = 64
"""Limit for the unknown tagged fields of one struct, which are skipped."""

MAX_STRING_BYTES = 0x7FFF
"""The limit of an int16 length, which also applies in flexible versions."""

FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The `struct` characters of the types with a fixed size."""

_ELLIPSIS = "…".encode()
_TWO_BYTES = struct.Struct("BB").pack
_THREE_BYTES = struct.Struct("BBB").pack
SHORT_UVARINTS = tuple(bytes((value,)) for value in range(128))
"""The encodings of 0 to 127."""


def cut_text(text: str) -> bytes:
    """Return `text` in UTF-8, shortened to whole characters and an ellipsis above 32,767 bytes."""
    content = text.encode(errors="replace")
    if len(content) <= MAX_STRING_BYTES:
        return content
    kept = content[: MAX_STRING_BYTES - len(_ELLIPSIS)].decode(errors="ignore")
    cut = kept.encode() + _ELLIPSIS
    assert len(cut) <= MAX_STRING_BYTES
    return cut


def fixed_size(type_name: str) -> int:
    """Return the size on the wire, in bytes, of a type in `FIXED_FORMATS`."""
    return struct.calcsize(">" + FIXED_FORMATS[type_name])


def encode_uvarint(value: int) -> bytes:
    """Return the encoding of a value from 0 to 2^32 - 1: 1 to 5 bytes (KIP-482)."""
    if value < 128:
        return SHORT_UVARINTS[value]
    if value < 1 << 14:
        return _TWO_BYTES(value & 127 | 128, value >> 7)
    if value < 1 << 21:
        return _THREE_BYTES(value & 127 | 128, value >> 7 & 127 | 128, value >> 14)
    assert value < 1 << 32, "a longer number is rejected by every reader"
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def finish_uvarint(view: View, position: int, first: int) -> tuple[int, int]:
    """Return the value of a number of several bytes, and the position after it.

    `first` is its first byte, and `position` the one after that. Raises `IndexError` at the end of
    `view`, and `WireError` for a number of more than 32 bits.
    """
    second = view[position]
    value = first & 127 | (second & 127) << 7
    position += 1
    if second < 128:
        return value, position
    for shift in (14, 21, 28):
        byte = view[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise WireError("a variable-length number of more than 32 bits")


def decode_uvarint(view: View, position: int) -> tuple[int, int]:
    """Return the value at `position` and the position after it; raises like `finish_uvarint`."""
    first = view[position]
    if first < 128:
        return first, position + 1
    return finish_uvarint(view, position + 1, first)


def skip_tagged_fields(view: View, position: int, first: int, end: int) -> int:
    """Return the position after a section of unknown tagged fields.

    `first` is the first byte of their number, and `position` the one after that. Raises
    `WireError`, and `IndexError` at the end of `view`.
    """
    count = first
    if count > 127:
        count, position = finish_uvarint(view, position, first)
    if count > MAX_UNKNOWN_TAGS:
        raise WireError(f"{count} unknown tagged fields; at most {MAX_UNKNOWN_TAGS} are allowed")
    previous = -1
    for _ in range(count):
        tag, position = decode_uvarint(view, position)
        size, position = decode_uvarint(view, position)
        check_tag(tag, previous)
        previous = tag
        position += size
        if position > end:
            raise WireError(f"tagged field {tag} of {size} bytes passes the end")
    return position


def check_tag(tag: int, previous: int) -> None:
    """Raise `WireError` unless tags ascend."""
    if tag <= previous:
        raise WireError(f"tagged field {tag} after {previous}; they must ascend")


def encode_fixed_array(character: str, values: Sequence[object]) -> bytes:
    """Return the encoding of `values`, each with the format of the `struct` character."""
    return struct.pack(f">{len(values)}{character}", *values)
