"""The size of a response, which is checked before anything is allocated for it."""

from __future__ import annotations

from lakelog.dialogue.errors import InvalidResponseError
from lakelog.wire.schema import Buffer

MAX_RESPONSE_BYTES = (100 << 20) + (1 << 20)
"""Default limit of a response: a Fetch response of 100 MiB with its headers."""

_RESPONSE_MIN = 4


def response_size(head: Buffer, most: int) -> int:
    """Return the size in bytes that the first four bytes of a frame announce.

    Raises `InvalidResponseError` for a size that no response has, or above `most`.
    """
    size = int.from_bytes(head, "big", signed=True)
    if not _RESPONSE_MIN <= size <= most:
        raise InvalidResponseError(f"a response of {size} bytes")
    return size
