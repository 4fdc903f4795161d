"""Topic and directory ids: 16 bytes in memory and on the wire, 22 URL-safe characters in text."""

from __future__ import annotations

import base64
import binascii
from typing import Protocol

ZERO_UUID = bytes(16)
"""The value that means "no id" on the wire."""

_RESERVED = frozenset({ZERO_UUID, bytes(15) + b"\x01"})
_TEXT_LENGTH = 22


class RandomBytes(Protocol):
    """The part of `lakelog.runtime.api.Random` that makes an id."""

    def bytes(self, size: int) -> bytes: ...


def random_uuid(random: RandomBytes) -> bytes:
    """Return a version 4 UUID that Kafka does not reserve and whose text does not begin with `-`.

    A command line would treat a leading dash as an option.
    """
    while True:
        value = _version_4(random)
        if value not in _RESERVED and not encode_uuid(value).startswith("-"):
            return value


def random_uuid_text(random: RandomBytes) -> str:
    """Return a version 4 UUID as 32 hexadecimal digits with dashes, for the ids of members."""
    digits = _version_4(random).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _version_4(random: RandomBytes) -> bytes:
    raw = bytearray(random.bytes(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)


def encode_uuid(value: bytes) -> str:
    """Return the 22 characters of URL-safe base64 for 16 bytes."""
    assert len(value) == 16
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def decode_uuid(text: str) -> bytes:
    """Return the 16 bytes of an encoded UUID.

    Raises `ValueError` for any text that `encode_uuid` does not produce. Only two bits of the last
    character are significant; text with other bits set is damaged.
    """
    try:
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error:
        value = b""
    if len(value) != 16 or encode_uuid(value) != text:
        raise ValueError(f"{text!r} is not a UUID of {_TEXT_LENGTH} URL-safe base64 characters")
    return value
