"""Open segment files: counted readers, and a bound on how many are open.

A file is closed once its segment has retired it and its last reader has released it. So a response
that is half sent survives a roll, a deletion and an eviction. Eviction is second chance: a file
that was used since the last round stays open.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from lakelog.base.errors import lacks_descriptors
from lakelog.runtime.api import Disk, File
from lakelog.storage.segments.txn_index import AbortedTransaction

MAX_OPEN_DEFAULT = 512
_CLOSED_FOR_ONE_MAX = 8
"""Files that are closed to open another one; a file with readers keeps its descriptor."""
_INDEX_BYTES_MAX = 64 << 20
"""Memory for the loaded indexes of sealed segments."""


class Handle:
    """An open file and the number of its readers."""

    __slots__ = ("file", "readers", "retired", "used")

    def __init__(self, file: File) -> None:
        self.file = file
        self.readers = 0
        self.retired = False
        self.used = True

    def release(self) -> None:
        """End one read; close a retired file with the last one."""
        self.readers -= 1
        assert self.readers >= 0
        if self.retired:
            self.close_unread()

    def retire(self) -> None:
        """Close the file as soon as it has no readers."""
        self.retired = True
        self.close_unread()

    def close_unread(self) -> None:
        """Close a retired file unless it has readers."""
        if not self.readers:
            self.file.close()


class Evictable(Protocol):
    handle: Handle | None

    @property
    def unloadable_bytes(self) -> int:
        """Memory that `unload` would free."""
        ...

    def unload(self) -> None:
        """Give up the handle and everything else that can be loaded again."""
        ...


class HandleCache:
    """Opens the files of one data folder, `max_open` at a time, plus evicted files with readers."""

    def __init__(self, disk: Disk, max_open: int = MAX_OPEN_DEFAULT) -> None:
        assert max_open > 0
        self.disk = disk
        self.max_open = max_open
        self._owners: OrderedDict[Evictable, None] = OrderedDict()
        self._loads: dict[Evictable, int] = {}
        self._loaded = 0
        """Sum of the bytes in `_loads`, kept because adding them up at each load is quadratic."""

    def __len__(self) -> int:
        return len(self._owners)

    def open(self, owner: Evictable, path: Path) -> Handle:
        """Open the file of `owner` and set its handle. Raises `OSError`.

        That is a `FileNotFoundError` if the file is gone: a read never creates a segment.
        """
        assert owner.handle is None, "an open handle would be lost, and its file never closed"
        while len(self._owners) >= self.max_open:
            self._next_victim().unload()
        owner.handle = handle = Handle(self._open(path))
        self._owners[owner] = None
        return handle

    def _open(self, path: Path) -> File:
        """Open a file; close others while the process has no descriptor left."""
        for _ in range(_CLOSED_FOR_ONE_MAX):
            try:
                return self.disk.open(path)
            except OSError as error:
                if not lacks_descriptors(error) or not self._owners:
                    raise
            # Sockets and files share the descriptors of the process: below `max_open` it may have
            # none.
            self._next_victim().unload()
        return self.disk.open(path)

    def close(self, owner: Evictable) -> None:
        """Retire the handle of `owner`, if it has one."""
        handle = owner.handle
        if handle is not None:
            owner.handle = None
            del self._owners[owner]
            self._loaded -= self._loads.pop(owner, 0)
            assert self._loaded >= 0
            handle.retire()

    def free_capacity(self, newest: Evictable) -> None:
        """Count the bytes that `newest` can unload now; unload others while the sum is too large.

        The limit is 64 MiB of loaded indexes per data folder.
        """
        size = newest.unloadable_bytes
        if not size or newest not in self._owners:
            return
        self._loaded += size - self._loads.get(newest, 0)
        self._loads[newest] = size
        while self._loaded > _INDEX_BYTES_MAX:
            victim = self._next_victim()
            # Unloading the index that was just loaded would make its search load it again for ever.
            if victim is newest:
                return
            victim.unload()

    def _next_victim(self) -> Evictable:
        assert self._owners
        while True:
            owner = next(iter(self._owners))
            handle = owner.handle
            if handle is None or not handle.used:
                return owner
            # Second chance: a used file moves to the end once, and is evicted if it is not used
            # again.
            handle.used = False
            self._owners.move_to_end(owner)


class LogSlice:
    """Whole batches in a segment file, for `sendfile` or `read`. Release it exactly once.

    `is_resident` is a guess whether the page cache holds the range; `None` if that is unknown.
    `aborted` are the aborted transactions with records in it, if a reader asked for them.
    """

    __slots__ = ("_handle", "aborted", "file", "is_resident", "position", "size")

    def __init__(
        self, handle: Handle, position: int, size: int, is_resident: bool | None = None
    ) -> None:
        handle.readers += 1
        handle.used = True
        self._handle = handle
        self.file = handle.file
        self.position = position
        self.size = size
        self.is_resident = is_resident
        self.aborted: Sequence[AbortedTransaction] = ()

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """Return the bytes. Raises `OSError`."""
        return self.file.read_at(self.position, self.size)

    def beside(self, position: int, size: int) -> LogSlice:
        """Return another range (bytes) of the same file; the caller releases it as well."""
        return LogSlice(self._handle, position, size)

    def release(self) -> None:
        """Release the slice. The file is closed if it was retired and this was its last reader."""
        handle = self._handle
        handle.readers -= 1
        assert handle.readers >= 0
        if handle.retired:
            handle.close_unread()
