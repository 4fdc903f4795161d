"""Finds responses in received bytes.

Memory grows with the bytes that arrive: a peer that announces a large response and sends little
data costs nothing.
"""

from __future__ import annotations

from lakelog.network_client.errors import InvalidResponseError
from lakelog.wire.framing import FRAME_SIZE_BYTES
from lakelog.wire.schema import Buffer

MAX_RESPONSE_BYTES = (100 << 20) + (1 << 20)
"""Default limit of a response: a Fetch response of 100 MiB with its headers."""

_RESPONSE_MIN = 4
_HTTP = b"HTTP"
"""The first bytes of each answer of an HTTP server."""
_CAPACITY_MIN = 64 * 1024
_CAPACITY_KEPT_MAX = 1 << 20
"""After a large response as much memory is made again, up to this: the next is often as large."""
_COPIED_MAX = 8 * 1024
"""A response up to this size is copied, and the memory that received it is used again."""


def response_size(head: Buffer, most: int) -> int:
    """Return the size in bytes that the first four bytes of a frame announce.

    Raises `InvalidResponseError` for a size that no response has, or above `most`.
    """
    size = int.from_bytes(head, "big", signed=True)
    if not _RESPONSE_MIN <= size <= most:
        if bytes(head) == _HTTP:
            raise InvalidResponseError(
                "the answer is HTTP, not Kafka's protocol: the address is that of an HTTP server"
            )
        raise InvalidResponseError(f"a response of {size} bytes")
    return size


class ResponseFrames:
    """The received bytes of one connection that are not yet returned as responses.

    The caller receives into `unfilled()` and reports the count with `received`. A large response is
    returned in the memory that received it, without a copy. The next one gets other memory, unless
    the caller holds no view of the response any more: new memory is cleared and mapped, which takes
    half as long as receiving.
    """

    def __init__(self, most: int = MAX_RESPONSE_BYTES) -> None:
        self._most = most
        self._memory = bytearray(_CAPACITY_MIN)
        self._view = memoryview(self._memory)
        self._start = self._end = 0
        """The bytes of `_view` that are received and not yet returned."""
        self._size = _CAPACITY_MIN
        """The size of the next memory, at least."""
        self._lent: bytearray | None = None
        """The memory of the last large response, if the next one may be as large."""

    def unfilled(self) -> memoryview:
        """Return the memory for the next received bytes, at least one.

        It grows fourfold when it is full: growing copies at most a third of a response.
        """
        if self._end == len(self._view):
            self._move(max(self._size, min(4 * (self._end - self._start), self._frame_size())))
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Note that the first `count` bytes of `unfilled()` were received; `next` checks them."""
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
            self._lend()
            return frame
        copy = bytes(frame)
        if self._start == self._end:
            self._start = self._end = 0
        return copy

    def _frame_size(self) -> int:
        """Return the size in bytes of the frame being received."""
        head = self._view[self._start : self._start + FRAME_SIZE_BYTES]
        if len(head) < FRAME_SIZE_BYTES:
            return 0
        return FRAME_SIZE_BYTES + response_size(head, self._most)

    def _lend(self) -> None:
        """Leave the memory to the response that was found in it."""
        memory, size = self._memory, self._start
        self._size = max(min(size, _CAPACITY_KEPT_MAX), _CAPACITY_MIN)
        # New memory is made when bytes come: the response may be done with by then.
        self._move(self._end - size)
        self._lent = memory if len(memory) <= 2 * _CAPACITY_KEPT_MAX else None

    def _move(self, size: int) -> None:
        """Go on in other memory of at least `size` bytes."""
        rest = self._view[self._start : self._end]
        assert len(rest) <= size
        lent, self._lent = self._lent, None
        if lent is None or len(lent) < size or not _is_free(lent):
            lent = bytearray(size)
        self._memory, self._view = lent, memoryview(lent)
        self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)


def _is_free(memory: bytearray) -> bool:
    """Return whether there is no view of this memory, which is not empty."""
    try:
        memory.append(memory.pop())  # the size of memory with a view cannot change
    except BufferError:
        return False
    return True
