"""How many files are open, and what happens where the process has no descriptor left."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from lakelog.storage.segments.handles import Handle, HandleCache


class FakeFile:
    def __init__(self, disk: FakeDisk) -> None:
        self._disk = disk

    def close(self) -> None:
        self._disk.free += 1


class FakeDisk:
    """Has `free` descriptors."""

    def __init__(self, free: int, code: int = errno.EMFILE) -> None:
        self.free = free
        self._code = code

    def open(self, path: Path) -> Any:
        if not self.free:
            raise OSError(self._code, os.strerror(self._code), str(path))
        self.free -= 1
        return FakeFile(self)


class Owner:
    unloadable_bytes = 0

    def __init__(self, cache: HandleCache) -> None:
        self.handle: Handle | None = None
        self._cache = cache

    def unload(self) -> None:
        self._cache.close(self)

    def open(self) -> Handle:
        return self._cache.open(self, Path("/log"))


def _cache(disk: FakeDisk) -> HandleCache:
    unchecked: Any = disk
    return HandleCache(unchecked, 100)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_without_a_descriptor_another_file_is_closed(code: int) -> None:
    cache = _cache(FakeDisk(3, code))
    owners = [Owner(cache) for _ in range(5)]
    for owner in owners:
        owner.open()
    assert len(cache) == 3
    assert owners[-1].handle is not None


def test_files_that_are_being_read_keep_their_descriptors() -> None:
    disk = FakeDisk(2)
    cache = _cache(disk)
    read = [Owner(cache).open() for _ in range(2)]
    for handle in read:
        handle.readers += 1
    with pytest.raises(OSError, match="Too many open files"):
        Owner(cache).open()
    for handle in read:
        handle.release()
    assert disk.free == 2
    Owner(cache).open()


def test_other_failures_close_nothing() -> None:
    disk = FakeDisk(1)
    cache = _cache(disk)
    Owner(cache).open()
    disk._code = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        Owner(cache).open()
    assert len(cache) == 1
