"""Finds responses in received bytes.

Memory grows with the bytes that arrive: a peer that announces a large response and sends little
data costs nothing.
"""

from __future__ import annotations

from lakelog.dialogue.errors import InvalidResponseError
from lakelog.wire.framing import FRAME_SIZE_BYTES
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


class ResponseFrames:
    """The received bytes of one connection that are not yet returned as responses."""

    def __init__(self, most: int = MAX_RESPONSE_BYTES) -> None:
        self._most = most
        self._received = bytearray()

    def add(self, data: Buffer) -> None:
        """Append received bytes, which are copied; `next` checks their size."""
        self._received += data

    def next(self) -> bytes | None:
        """Return the next complete response without its size, or None.

        Raises `InvalidResponseError` as soon as a size is invalid.
        """
        received = self._received
        if len(received) < FRAME_SIZE_BYTES:
            return None
        end = FRAME_SIZE_BYTES + response_size(received[:FRAME_SIZE_BYTES], self._most)
        if len(received) < end:
            return None
        frame = bytes(memoryview(received)[FRAME_SIZE_BYTES:end])
        del received[:end]
        return frame
