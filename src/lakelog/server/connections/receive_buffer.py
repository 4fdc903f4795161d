"""The bytes that a connection has received: one buffer, and its part of the budget of all.

It holds requests that wait for their turn and the beginning of the next. It grows with what comes
in, and its first few KiB are outside the budget.
"""

from __future__ import annotations

from struct import Struct

from lakelog.server.connections.request_memory import RequestMemory

FIRST_BUFFER_SIZE = 4 * 1024
"""What a connection may receive into outside the budget of all connections."""
BUFFER_SIZE_MIN = 64 * 1024
_UNHANDLED_MAX = 256 * 1024
_AHEAD_MAX = 512 * 1024
"""What a peer that sends ahead is let fill at a time."""
FRAME_SIZE = Struct(">i")
"""Stands before each request and counts what follows."""


class ReceiveBuffer:
    """What is in use of `_buffer` lies between `_start` and `_end`; `_view` is a view of it.

    While `_stalled`, what has been received waits for its turn; while `_handling`, it is read.
    """

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self._buffer = bytearray(0)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._handling = False
        self._stalled = False

    def _resume_reading(self) -> None:
        """Called when it is worth asking for memory again."""
        raise NotImplementedError

    def _make_room(self) -> bool:
        """Grows with the bytes received, never by a declared length alone."""
        used = self._end - self._start
        if self._start:
            rest = self._view[self._start : self._end]
            if not self._widen(rest):
                self._view[:used] = rest
        elif (self._stalled and used >= _UNHANDLED_MAX) or not self._grow(used):
            return False
        self._start = 0
        self._end = used
        return True

    def _widen(self, rest: memoryview) -> bool:
        """For a peer that sends ahead: the more is taken at a time, the less each request costs."""
        old = len(self._buffer)
        size = max(BUFFER_SIZE_MIN, min(old * 4, _AHEAD_MAX))
        if size <= old or not self._memory.try_take(size - self.held_bytes):
            return False
        self._replace(size, rest)
        return True

    def _grow(self, used: int) -> bool:
        old = len(self._buffer)
        size = FIRST_BUFFER_SIZE
        if old:
            size = max(BUFFER_SIZE_MIN, min(old * 4, self._wanted(used)))
            if not self._memory.take(self, size - self.held_bytes, self._resume_reading):
                return False
        self._replace(size, self._view[:used])
        return True

    def _replace(self, size: int, rest: memoryview) -> None:
        """Another buffer, which begins with `rest`; what it takes has been granted."""
        try:
            grown = bytearray(size)
        except MemoryError:
            granted = size if size > FIRST_BUFFER_SIZE else 0
            self._memory.give(self, granted - self.held_bytes)
            raise
        grown[: len(rest)] = rest
        self._buffer = grown
        self._view = memoryview(grown)

    def _wanted(self, used: int) -> int:
        """The size that holds the frame being received, and some of the next."""
        if used < 4:
            return BUFFER_SIZE_MIN
        (size,) = FRAME_SIZE.unpack_from(self._buffer, 0)
        return max(used * 2, int(size) + 4 + BUFFER_SIZE_MIN)

    def _drop_buffer(self) -> None:
        size = self.held_bytes
        self._buffer = bytearray(0)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        if size:
            self._memory.give(self, size)

    def drop_idle_buffer(self) -> None:
        """Gives back the receive buffer, or most of it, if little or nothing is in it."""
        rest = bytes(self._view[self._start : self._end][: FIRST_BUFFER_SIZE + 1])
        if self._handling or len(rest) > FIRST_BUFFER_SIZE:
            return
        self._drop_buffer()
        if rest:
            self._grow(0)
            self._view[: len(rest)] = rest
            self._end = len(rest)

    @property
    def held_bytes(self) -> int:
        """What the receive buffer takes of the budget of all connections."""
        size = len(self._buffer)
        return size if size > FIRST_BUFFER_SIZE else 0

    @property
    def received_bytes(self) -> int:
        """What has been received and not handled."""
        return self._end - self._start
