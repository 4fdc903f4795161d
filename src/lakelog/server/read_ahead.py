"""Has a thread read from the device what a connection is about to send.

A `sendfile` of what the page cache lacks would hold the loop for tens of milliseconds. One of what
it holds may still hold it for one: the kernel marks a page in what it has read ahead, and whoever
comes to that page first has the next megabytes allocated and asked for. So from the first range
that is missing to the end of the file, a thread is the first to touch each page, and stays ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lakelog.runtime.api import Disk, File, Tasks
from lakelog.storage.handles import LogSlice

COLD_SEND_MAX = 256 * 1024
"""Bytes sent in one callback of what comes from the device: no faster than that anyway."""
READ_SIZE_MAX = 4 * 1024 * 1024
_AHEAD_MAX = 8 * 1024 * 1024
_FOLLOWING = 64 * 1024
"""What follows a range is to be there as well: whoever reads on asks the loop for the header."""


class ReadAhead:
    """Of one connection in one file. `then` is called after each read, with this and its error."""

    def __init__(
        self,
        disk: Disk,
        tasks: Tasks,
        file: File,
        then: Callable[[ReadAhead, BaseException | None], object],
    ) -> None:
        self._disk = disk
        self._tasks = tasks
        self._then = then
        self._start = self._until = -1
        self._size = 0
        self._reading = False
        self.file = file
        self.has_ended = False
        """Whether all up to the end of the file has been read."""

    def has(self, position: int, size: int) -> bool:
        """Whether this range has been read, and some of what follows."""
        return self._start <= position and position + size + _FOLLOWING <= self._until

    def begin(self, part: LogSlice, position: int, size: int) -> None:
        """Reads what is missing, which is sent when it is there."""
        if self._reading:
            return
        if self.has(position, size) or not self._start <= position <= self._until:
            self._start = self._until = position
            self._size = size + _FOLLOWING
        self._read(part)

    def go_on(self, part: LogSlice, position: int) -> None:
        """Reads on if that is due, now that all up to `position` has been sent."""
        if not self._reading and self._until - position < _AHEAD_MAX:
            self._read(part)

    def _read(self, part: LogSlice) -> None:
        held = part.beside(self._until, self._size)
        try:
            work = self._tasks.offload(
                "read", lambda: self._disk.read_ahead(held.file, held.position, held.size)
            )
        except BaseException:
            held.release()
            raise
        self._reading = True
        self._size = min(self._size * 2, READ_SIZE_MAX)
        work.add_done_callback(partial(self._on_read, held))

    def _on_read(self, held: LogSlice, work: Any) -> None:
        held.release()
        self._reading = False
        failure = work.exception()
        if failure is None:
            found = work.result()
            self._until = held.position + found
            self.has_ended = found < held.size
        self._then(self, failure)
