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
_ROOM_MIN = 64 * 1024
_ROOM_KEPT_MAX = 1 << 20
"""After a large response as much memory is made again, up to this: the next is often as large."""
_COPIED_MAX = 8 * 1024
"""A response up to this size is copied, and the memory that received it is used again."""


def response_size(head: Buffer, most: int) -> int:
    """Return the size in bytes that the first four bytes of a frame announce.

    Raises `InvalidResponseError` for a size that no response has, or above `most`.
    """
    size = int.from_bytes(head, "big", signed=True)
    if not _RESPONSE_MIN <= size <= most:
        raise InvalidResponseError(f"a response of {size} bytes")
    return size


class ResponseFrames:
    """The received bytes of one connection that are not yet returned as responses.

    The caller receives into `room()` and reports the count with `received`. A large response is
    returned in the memory that received it, without a copy, and the next one gets other memory.
    """

    def __init__(self, most: int = MAX_RESPONSE_BYTES) -> None:
        self._most = most
        self._view = memoryview(bytearray(_ROOM_MIN))
        self._start = self._end = 0
        """The bytes of `_view` that are received and not yet returned."""

    def room(self) -> memoryview:
        """Return the memory for the next received bytes, at least one.

        It grows fourfold when it is full: growing copies at most a third of a response.
        """
        if self._end == len(self._view):
            self._move(max(_ROOM_MIN, min(4 * (self._end - self._start), self._wanted())))
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Note that the first `count` bytes of `room()` were received; `next` checks them."""
        self._end += count
        assert self._end <= len(self._view)

    def next(self) -> Buffer | None:
        """Return the next complete response without its size, or None.

        Raises `InvalidResponseError` as soon as a size is invalid.
        """
        body = self._start + FRAME_SIZE_BYTES
        if self._end < body:
            return None
        end = body + response_size(self._view[self._start : body], self._most)
        if self._end < end:
            return None
        frame = self._view[body:end]
        self._start = end
        if len(frame) > _COPIED_MAX:
            self._move(max(self._end - end, min(end, _ROOM_KEPT_MAX), _ROOM_MIN))
            return frame
        copy = bytes(frame)
        if self._start == self._end:
            self._start = self._end = 0
        return copy

    def _wanted(self) -> int:
        """Return the size in bytes of the frame being received."""
        head = self._view[self._start : self._start + FRAME_SIZE_BYTES]
        if len(head) < FRAME_SIZE_BYTES:
            return 0
        return FRAME_SIZE_BYTES + response_size(head, self._most)

    def _move(self, size: int) -> None:
        """Go on in new memory of `size` bytes."""
        rest = self._view[self._start : self._end]
        assert len(rest) <= size
        self._view = memoryview(bytearray(size))
        self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
