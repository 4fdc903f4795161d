"""Produce requests as bytes, of which only correlation id and batch differ."""

from __future__ import annotations

from struct import Struct, calcsize

from lakelog.wire.framing import FRAME_SIZE_BYTES

_FRAME_SIZE = Struct(">i")
_NUMBER_AT = 4
"""Position of the correlation id: after the API's key and version."""
_NUMBER_SIZE = 4

Found = tuple[list[int], list[memoryview], list[int]]
"""Correlation ids, batches, and the exclusive ends of the requests."""


class ProduceFrames:
    """Requests that are alike.

    Args:
        head: the encoding from the API's key up to the length of the records.
        tail: follows the records; if it is empty, their length is an int32.
    """

    __slots__ = ("_after", "_before", "_fixed", "_measure", "_size", "_tail", "_unpack")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self._before = head[:_NUMBER_AT]
        self._after = head[_NUMBER_AT + _NUMBER_SIZE :]
        self._measure = _measure_compact if tail else _measure_plain
        layout = "3s" if tail else "4s"
        struct = Struct(f">{_NUMBER_AT}si{len(self._after)}s{layout}")
        self._fixed = struct.size - calcsize(layout)
        self._size = struct.size
        self._unpack = struct.unpack_from
        self._tail = tail

    def find(self, view: memoryview, start: int, end: int, most: int) -> Found:
        """Find the request in `view[start:end]` and the equal ones behind it, `most` in all.

        Only complete requests are returned; empty lists if the first one differs.
        """
        numbers: list[int] = []
        batches: list[memoryview] = []
        ends: list[int] = []
        unpack, before, after, tail = self._unpack, self._before, self._after, self._tail
        measure, fixed, received = self._measure, self._fixed, len(view)
        while end - start >= self._size:
            first, number, second, length = unpack(view, start)
            stop = end - len(tail)
            # The length must fill the frame exactly: otherwise the request has other fields, and
            # only the decoder may judge it.
            size = measure(length, stop - start - fixed)
            if first != before or second != after or size < 0 or view[stop:end] != tail:
                break
            numbers.append(number)
            batches.append(view[stop - size : stop])
            ends.append(end)
            start = end + FRAME_SIZE_BYTES
            if start > received or len(ends) == most:
                break
            end = start + _FRAME_SIZE.unpack_from(view, end)[0]
            if end > received:
                break
        return numbers, batches, ends


def _measure_compact(length: bytes, capacity: int) -> int:
    """Return the bytes of the records whose compact length begins with these three bytes.

    -1 unless length and records fill the space together. Also -1 for 2 MiB and more, whose length
    has four bytes: they gain nothing here.
    """
    low, middle, high = length
    if low < 128:
        size, width = low - 1, 1
    elif middle < 128:
        size, width = (low & 127 | middle << 7) - 1, 2
    else:
        size, width = (low & 127 | (middle & 127) << 7 | high << 14) - 1, 3
        if high > 127:
            return -1
    return size if size + width == capacity else -1


def _measure_plain(length: bytes, capacity: int) -> int:
    size = int.from_bytes(length, "big", signed=True)
    return size if size + len(length) == capacity else -1
