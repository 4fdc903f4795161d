"""A VFS of SQLite over a disk in memory: the real library, with every file call answered here.

It is built with ctypes from `sqlite3.h` (https://www.sqlite.org/vfs.html), for one thread that ends
each transaction before it begins another. All locks are granted, except the exclusive lock at a
close while another connection has the file. Shared memory is a buffer that dies with the processes.
Directories are synced as in SQLite's Unix VFS: with the first sync of a new journal, and after a
removal.
"""

from __future__ import annotations

import _sqlite3
import atexit
import contextlib
import ctypes
import errno
import itertools
import sqlite3
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from doubles.disk import MemoryDisk, MemoryFile

_NAME = b"lakelog-memory"
_OK, _BUSY, _FULL, _CANTOPEN, _NOTFOUND = 0, 5, 13, 14, 12
_READ, _SHORT_READ, _WRITE, _FSYNC = 266, 522, 778, 1034
_TRUNCATE, _FSTAT, _DELETE, _ACCESS, _SHMMAP = 1546, 1802, 2570, 3338, 5386
_DELETE_NOENT = 5898
_OPEN_CREATE, _OPEN_JOURNAL, _OPEN_WAL = 0x4, 0x800, 0x80000
_POWERSAFE_OVERWRITE = 0x1000
_SECTOR_SIZE = 4096
_PATH_MAX = 512
_SHARED, _EXCLUSIVE = 1, 4
_SEED_RANDOM = 28
"""SQLITE_TESTCTRL_PRNG_SEED."""

_Pointer, _Int, _Int64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64


class _File(ctypes.Structure):
    """`sqlite3_file`, followed by the number of an `_Open`."""

    _fields_ = (("methods", _Pointer), ("number", _Int64))


_FilePointer = ctypes.POINTER(_File)
_METHODS: dict[str, tuple[Any, ...]] = {
    "close": (),
    "read": (_Pointer, _Int, _Int64),
    "write": (_Pointer, _Int, _Int64),
    "truncate": (_Int64,),
    "sync": (_Int,),
    "size": (ctypes.POINTER(_Int64),),
    "lock": (_Int,),
    "unlock": (_Int,),
    "is_reserved": (ctypes.POINTER(_Int),),
    "control": (_Int, _Pointer),
    "sector_size": (),
    "characteristics": (),
    "map_shared": (_Int, _Int, _Int, ctypes.POINTER(_Pointer)),
    "lock_shared": (_Int, _Int, _Int),
    "barrier": (),
    "unmap_shared": (_Int,),
}
_OPENS: dict[str, tuple[Any, ...]] = {
    "open": (ctypes.c_char_p, _FilePointer, _Int, ctypes.POINTER(_Int)),
    "delete": (ctypes.c_char_p, _Int),
    "access": (ctypes.c_char_p, _Int, ctypes.POINTER(_Int)),
    "full_path": (ctypes.c_char_p, _Int, _Pointer),
}


def _prototypes(first: Any, methods: dict[str, tuple[Any, ...]]) -> list[tuple[str, Any]]:
    return [
        (name, ctypes.CFUNCTYPE(_Int, first, *arguments)) for name, arguments in methods.items()
    ]


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods` of version 2."""

    _fields_ = (("version", _Int), *_prototypes(_FilePointer, _METHODS))


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs` of version 1."""

    _fields_ = (
        ("version", _Int),
        ("file_size", _Int),
        ("path_max", _Int),
        ("next", _Pointer),
        ("name", ctypes.c_char_p),
        ("data", _Pointer),
        *_prototypes(_Pointer, _OPENS),
        *((f"dl{number}", _Pointer) for number in range(4)),
        ("randomness", ctypes.CFUNCTYPE(_Int, _Pointer, _Int, _Pointer)),
        ("sleep", ctypes.CFUNCTYPE(_Int, _Pointer, _Int)),
        ("time", ctypes.CFUNCTYPE(_Int, _Pointer, ctypes.POINTER(ctypes.c_double))),
        ("last_error", ctypes.CFUNCTYPE(_Int, _Pointer, _Int, _Pointer)),
    )


class _Connection(sqlite3.Connection):
    """A connection that supports weak references. Its close releases its mount."""

    number = 0
    """Of its mount."""

    def close(self) -> None:
        super().close()
        _registered().forget(self.number)


_OPEN_CONNECTIONS: weakref.WeakSet[_Connection] = weakref.WeakSet()


@atexit.register
def close_connections() -> None:
    """Close connections that killed processes or tests left open.

    An open connection keeps its disk, and a simulated world with it. At the exit, closing them
    later would call freed callbacks.
    """
    for connection in list(_OPEN_CONNECTIONS):
        connection.close()


class Mount:
    """A disk as one process sees it; `is_alive` returns whether the process still runs."""

    def __init__(self, disk: MemoryDisk, is_alive: Callable[[], bool]) -> None:
        self.disk = disk
        self.is_alive = is_alive
        self.generation = disk.generation
        self.interruption: BaseException | None = None
        """The exception of a call at which the process was killed; SQLite cannot raise it."""

    def connect(self, path: Path) -> sqlite3.Connection:
        """Open a database. Raises `sqlite3.OperationalError` if that fails."""
        vfs = _registered()
        number = vfs.add(self)
        uri = f"file:/{number}{path}?vfs={_NAME.decode()}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, factory=_Connection)
        connection.number = number
        _OPEN_CONNECTIONS.add(connection)
        return connection


@dataclass(slots=True)
class _Open:
    mount: Mount
    file: MemoryFile
    sync_folder: bool
    level: int = 0

    @property
    def key(self) -> tuple[MemoryDisk, int, Path]:
        """The identity of a file, for connections of processes that run at the same time."""
        return self.mount.disk, self.mount.generation, self.file.path


class _MemoryVfs:
    """The VFS of this Python process; SQLite keeps pointers into it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._mounts: dict[int, Mount] = {}
        self._files: dict[int, _Open] = {}
        self._shared: dict[tuple[MemoryDisk, int, Path], list[Any]] = {}
        self._numbers = itertools.count(1)
        self._methods = _Methods(
            2,
            *(made(self._guarded(name)) for name, made in _prototypes(_FilePointer, _METHODS)),
        )
        self._vfs = _Vfs(1, ctypes.sizeof(_File), _PATH_MAX, None, _NAME, None)
        for name, prototype in _prototypes(_Pointer, _OPENS):
            setattr(self._vfs, name, prototype(self._guarded(name)))
        for name in ("randomness", "sleep", "time", "last_error"):
            prototype = type(getattr(self._vfs, name))
            setattr(self._vfs, name, prototype(lambda *_: 0))
        if library.sqlite3_vfs_register(ctypes.byref(self._vfs), 0) != _OK:
            raise OSError(errno.EINVAL, "SQLite rejected the VFS")

    def add(self, mount: Mount) -> int:
        number = next(self._numbers)
        self._mounts[number] = mount
        return number

    def forget(self, number: int) -> None:
        """Release a mount whose connection is closed."""
        self._mounts.pop(number, None)

    def _guarded(self, name: str) -> Callable[..., int]:
        """Return a callback that raises nothing: an `OSError` becomes SQLite's code for it.

        Any other exception becomes the interruption of the mount.
        """
        method, code = getattr(self, "_" + name), _CODES.get(name, _OK)
        finds = self._mount_of if name in _OPENS else self._owner_of

        def call(first: Any, *arguments: Any) -> int:
            mount = finds(first, *arguments)
            if mount is not None and not mount.is_alive() and name != "close":
                return code
            try:
                return int(method(first, *arguments) or _OK)
            except OSError as error:
                is_full = error.errno == errno.ENOSPC and name != "sync"  # as in SQLite's Unix VFS
                return _FULL if is_full else code
            except BaseException as error:  # noqa: BLE001 - raised after SQLite has returned
                assert mount is not None
                mount.interruption = error
                return code

        return call

    def _owner_of(self, file: Any, *_: Any) -> Mount | None:
        opened = self._files.get(file.contents.number)
        return None if opened is None else opened.mount

    def _mount_of(self, vfs: int, name: bytes | None, *_: Any) -> Mount | None:
        return None if name is None else self._split(name)[0]

    def _split(self, name: bytes) -> tuple[Mount, Path]:
        number, _, path = name.decode()[1:].partition("/")
        return self._mounts[int(number)], Path("/" + path)

    # The VFS

    def _open(self, vfs: int, name: bytes | None, file: Any, flags: int, out: Any) -> int:
        file.contents.methods = None
        if name is None:
            return _CANTOPEN
        mount, path = self._split(name)
        is_new = not mount.disk.exists(path)
        opened = mount.disk.open(path, create=bool(flags & _OPEN_CREATE))
        is_journal = bool(flags & (_OPEN_JOURNAL | _OPEN_WAL))
        number = next(self._numbers)
        self._files[number] = _Open(mount, opened, is_new and is_journal)
        file.contents.number = number
        file.contents.methods = ctypes.addressof(self._methods)
        if out:
            out[0] = flags
        return _OK

    def _delete(self, vfs: int, name: bytes, sync_folder: int) -> int:
        mount, path = self._split(name)
        if not mount.disk.exists(path):
            return _DELETE_NOENT
        mount.disk.remove(path)
        if sync_folder:
            mount.disk.sync_dir(path.parent)
        return _OK

    def _access(self, vfs: int, name: bytes, flags: int, out: Any) -> None:
        mount, path = self._split(name)
        out[0] = int(mount.disk.exists(path))

    def _full_path(self, vfs: int, name: bytes, size: int, out: int) -> int:
        if len(name) >= size:
            return _CANTOPEN
        ctypes.memmove(out, name + b"\0", len(name) + 1)
        return _OK

    # Its files

    def _at(self, file: Any) -> _Open:
        return self._files[file.contents.number]

    def _close(self, file: Any) -> None:
        closed = self._files.pop(file.contents.number)
        closed.file.close()
        if all(other.key != closed.key for other in self._files.values()):
            self._shared.pop(closed.key, None)

    def _read(self, file: Any, buffer: int, size: int, offset: int) -> int:
        data = self._at(file).file.read_at(offset, size)
        ctypes.memmove(buffer, data.ljust(size, b"\0"), size)
        return _OK if len(data) == size else _SHORT_READ

    def _write(self, file: Any, data: int, size: int, offset: int) -> None:
        self._at(file).file.write_at(offset, ctypes.string_at(data, size))

    def _truncate(self, file: Any, size: int) -> None:
        self._at(file).file.truncate(size)

    def _sync(self, file: Any, flags: int) -> None:
        opened = self._at(file)
        opened.file.sync()
        if opened.sync_folder:
            opened.mount.disk.sync_dir(opened.file.path.parent)
            opened.sync_folder = False

    def _size(self, file: Any, out: Any) -> None:
        out[0] = self._at(file).file.size()

    def _lock(self, file: Any, level: int) -> int:
        mine = self._at(file)
        others = [other for other in self._files.values() if other is not mine]
        is_shared = any(other.key == mine.key and other.level >= _SHARED for other in others)
        if level == _EXCLUSIVE and is_shared:
            return _BUSY
        mine.level = level
        return _OK

    def _unlock(self, file: Any, level: int) -> None:
        self._at(file).level = level

    def _is_reserved(self, file: Any, out: Any) -> None:
        out[0] = 0

    def _control(self, file: Any, operation: int, argument: int) -> int:
        return _NOTFOUND

    def _sector_size(self, file: Any) -> int:
        return _SECTOR_SIZE

    def _characteristics(self, file: Any) -> int:
        return _POWERSAFE_OVERWRITE

    def _map_shared(self, file: Any, number: int, size: int, extend: int, out: Any) -> None:
        shared = self._shared.setdefault(self._at(file).key, [])
        while extend and len(shared) <= number:
            shared.append(ctypes.create_string_buffer(size))
        out[0] = ctypes.addressof(shared[number]) if number < len(shared) else None

    def _lock_shared(self, file: Any, offset: int, count: int, flags: int) -> None:
        """No other connection is in a transaction."""

    def _barrier(self, file: Any) -> None:
        """A single thread needs no barrier."""

    def _unmap_shared(self, file: Any, delete: int) -> None:
        """The last connection removes it (`_close`)."""


_CODES = {
    "open": _CANTOPEN,
    "delete": _DELETE,
    "access": _ACCESS,
    "read": _READ,
    "write": _WRITE,
    "truncate": _TRUNCATE,
    "sync": _FSYNC,
    "size": _FSTAT,
    "map_shared": _SHMMAP,
}
"""The result code for an `OSError`, by method."""


@cache
def _library() -> ctypes.CDLL:
    """Return the SQLite library that Python's module uses, which must not be loaded twice.

    Raises `OSError` if it is linked statically.
    """
    for name in (_sqlite3.__file__, None):
        with contextlib.suppress(AttributeError, OSError):
            library = ctypes.CDLL(name)
            assert library.sqlite3_vfs_register
            return library
    raise OSError(
        errno.ENOSYS,
        "the SQLite of this Python cannot be loaded; install a Python with a shared libsqlite3",
    )


@cache
def _registered() -> _MemoryVfs:
    return _MemoryVfs(_library())


def seed_sqlite(seed: int) -> None:
    """Seed SQLite's random numbers, which become the salt of journals, for this process."""
    _library().sqlite3_test_control(_SEED_RANDOM, ctypes.c_int(seed & 0x7FFFFFFF | 1), None)
