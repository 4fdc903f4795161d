"""The resident part of a file in the page cache, and its eviction."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MAP_FAILED = ctypes.c_void_p(-1).value


def evict(path: Path) -> int:
    """Makes a file durable, for only clean pages can go; bytes that stay resident all the same."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return _resident(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def back_free_memory(folder: Path, megabytes: int) -> None:
    """Touch so much of the free memory that the host backs it during the next measurement.

    A host takes free pages back from its virtual machines after seconds. The next process that
    needs such a page is charged for its return, at three times the cost of writing to it.
    """
    path, block = folder / "scratch", bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(megabytes):
            file.write(block)
    path.unlink()


def _resident(fd: int, size: int) -> int:
    if not size:
        return 0
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    pages = ctypes.create_string_buffer((size + mmap.PAGESIZE - 1) // mmap.PAGESIZE)
    failed = _libc.mincore(address, size, pages)
    error = ctypes.get_errno()
    _libc.munmap(address, size)
    if failed:
        raise OSError(error, "mincore")
    return sum(page & 1 for page in pages.raw[: len(pages)]) * mmap.PAGESIZE
