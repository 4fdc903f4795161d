"""Zig-zag varints, seven bits per byte, low bits first: the encoding of numbers in records.

Source: https://developers.google.com/protocol-buffers/docs/encoding, "Signed Integers".
"""

from __future__ import annotations

from struct import iter_unpack

from lakelog.records.batch import CorruptRecord
from lakelog.records.flat import flat

_MAX_SHIFT = 63
_ALL_BITS = 2**64 - 1
_TABLE_SIZE = 1 << 13  # all that take two bytes


def _encode(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _two_bytes() -> tuple[bytes, ...]:
    """Yield the encodings of two bytes: for each second byte, all first bytes."""
    seconds = _TABLE_SIZE // 64
    pairs = bytearray(2 * 64 * (seconds - 1))
    pairs[0::2] = bytes(range(0x80, 0x100, 2)) * (seconds - 1)
    pairs[1::2] = b"".join(bytes((second,)) * 64 for second in range(1, seconds))
    return tuple([pair for (pair,) in iter_unpack("2s", pairs)])


VARINTS = tuple(_encode(value) for value in range(64)) + _two_bytes()
"""The encodings of small numbers, from 0 on."""
assert len(VARINTS) == _TABLE_SIZE


LOW_BITS = tuple((byte & 0x7F) >> 1 ^ -(byte & 1) for byte in range(0x100))
"""The number in the lower seven bits of a first byte; the next byte extends it in its direction."""


def encode_varint(value: int) -> bytes:
    """Return the encoding of `value`, which must fit in 64 bits: 1 to 10 bytes."""
    return VARINTS[value] if 0 <= value < _TABLE_SIZE else _encode(value)


@flat
def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position` and the position after it.

    As in Java, bits above the 64th are dropped. Raises `IndexError` at the end of `data`, and
    `CorruptRecord` for more than ten bytes.
    """
    if (low := data[position]) < 0x80:
        return LOW_BITS[low], position + 1
    elif (high := data[position + 1]) < 0x80:
        if low & 1:
            return LOW_BITS[low] - (high << 6), position + 2
        else:
            return LOW_BITS[low] + (high << 6), position + 2
    elif (top := data[position + 2]) < 0x80:
        high += (top << 7) - 0x80
        if low & 1:
            return LOW_BITS[low] - (high << 6), position + 3
        else:
            return LOW_BITS[low] + (high << 6), position + 3
    else:
        return _read_long(data, position)


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    rest = shift = 0
    while shift <= _MAX_SHIFT:  # bounded, so that a long run of 0x80 bytes costs little
        byte = data[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            rest &= _ALL_BITS
            return rest >> 1 ^ -(rest & 1), position
        shift += 7
    raise CorruptRecord("a varint of more than ten bytes")
