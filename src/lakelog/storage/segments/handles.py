"""Open segment files: counted readers, and a bound on how many are open.

A file is closed when its segment has let go of it and the last reader has too, whichever is
later, so a response half sent outlives a roll, a deletion and an eviction. Eviction is second
chance: whoever was used since the last round stays.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from lakelog.base.shortage import lacks_descriptors
from lakelog.runtime.api import Disk, File

MAX_OPEN_DEFAULT = 512
_CLOSED_FOR_ONE_MAX = 8
"""Files that are closed to open another; a file that is being read keeps its descriptor."""
_INDEX_BYTES_MAX = 64 << 20
"""What the loaded indexes of sealed segments may take."""


class Handle:
    """An open file and how many still read from it."""

    __slots__ = ("file", "readers", "retired", "used")

    def __init__(self, file: File) -> None:
        self.file = file
        self.readers = 0
        self.retired = False
        self.used = True

    def release(self) -> None:
        self.readers -= 1
        if self.retired:
            self.close_unread()

    def retire(self) -> None:
        """Lets the file be closed as soon as nobody reads from it."""
        self.retired = True
        self.close_unread()

    def close_unread(self) -> None:
        """Closes a retired file unless somebody reads from it."""
        if not self.readers:
            self.file.close()


class Evictable(Protocol):
    handle: Handle | None

    @property
    def unloadable_bytes(self) -> int:
        """Memory that `unload` would free."""
        ...

    def unload(self) -> None:
        """Gives up the handle and whatever else can be loaded again."""
        ...


class HandleCache:
    """Opens the files of one data folder, `max_open` at a time. Files being read come on top."""

    def __init__(self, disk: Disk, max_open: int = MAX_OPEN_DEFAULT) -> None:
        assert max_open > 0
        self.disk = disk
        self.max_open = max_open
        self._owners: OrderedDict[Evictable, None] = OrderedDict()
        self._loads: dict[Evictable, int] = {}
        self._loaded = 0
        """Bytes, of all in `_loads`: to count them anew at each load would cost what all have."""

    def __len__(self) -> int:
        return len(self._owners)

    def open(self, owner: Evictable, path: Path) -> Handle:
        """`FileNotFoundError` if the file is gone: a segment is never created by reading it."""
        while len(self._owners) >= self.max_open:
            self._next_victim().unload()
        owner.handle = handle = Handle(self._open(path))
        self._owners[owner] = None
        return handle

    def _open(self, path: Path) -> File:
        """Closes other files where the process has no descriptor left."""
        for _ in range(_CLOSED_FOR_ONE_MAX):
            try:
                return self.disk.open(path)
            except OSError as error:
                if not lacks_descriptors(error) or not self._owners:
                    raise
            self._next_victim().unload()
        return self.disk.open(path)

    def close(self, owner: Evictable) -> None:
        handle = owner.handle
        if handle is not None:
            owner.handle = None
            del self._owners[owner]
            self._loaded -= self._loads.pop(owner, 0)
            handle.retire()

    def make_room(self, newest: Evictable) -> None:
        """Called when `newest` can give up what it could not: others do if all have too much."""
        size = newest.unloadable_bytes
        if not size or newest not in self._owners:
            return
        self._loaded += size - self._loads.get(newest, 0)
        self._loads[newest] = size
        while self._loaded > _INDEX_BYTES_MAX:
            victim = self._next_victim()
            if victim is newest:
                return
            victim.unload()

    def _next_victim(self) -> Evictable:
        while True:
            owner = next(iter(self._owners))
            handle = owner.handle
            if handle is None or not handle.used:
                return owner
            handle.used = False
            self._owners.move_to_end(owner)


class LogSlice:
    """Whole batches in a segment file, for `sendfile` or `read`. Release it exactly once.

    `is_resident` tells whether the page cache holds it by what has just been seen, `None` if
    nobody has looked.
    """

    __slots__ = ("_handle", "file", "is_resident", "position", "size")

    def __init__(
        self, handle: Handle, position: int, size: int, is_resident: bool | None = None
    ) -> None:
        handle.readers += 1
        self._handle = handle
        self.file = handle.file
        self.position = position
        self.size = size
        self.is_resident = is_resident

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.size)

    def beside(self, position: int, size: int) -> LogSlice:
        """Another range of the same file, which need not be of whole batches or within it."""
        return LogSlice(self._handle, position, size)

    def release(self) -> None:
        handle = self._handle
        handle.readers -= 1
        if handle.retired:
            handle.close_unread()
