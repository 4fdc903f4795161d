"""The file system calls of a real disk, and the disk that a power failure would leave after them.

The functions of `os` are wrapped, below everything of the product, and each call on a file below
one folder is noted. `after_power_failure` replays the calls on a `MemoryDisk`, which keeps only
synced data. As a program it runs `lakelog` with its calls recorded:

    python tests/recorded_disk.py TRACE FOLDER serve --data FOLDER ...

Writes of other programs and of SQLite are not recorded.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from doubles.disk import MemoryDisk, MemoryFile
from storage_kit import ManualClock

Call = tuple[Any, ...]
"""The name of a call, and its arguments; data as text in base64."""


class Recorder:
    """Calls on files below `folder`, in the order of their ends. `keep` gets each call at once."""

    def __init__(self, folder: Path, keep: Callable[[Call], object]) -> None:
        self._folder = folder
        self._keep = keep
        self._lock = threading.RLock()
        """Held over each call and its note: the calls of several threads have one order."""
        self._open: set[int] = set()

    def install(self, replace: Callable[[str, Any], object]) -> None:
        """Wrap the functions of `os`: `replace` gets the name of a function and its wrapper."""
        for names, note in (
            (("open",), self._opened),
            (("close",), self._closed),
            (("mkdir",), self._make_dir),
            (("rmdir",), self._remove_dir),
            (("pwrite", "pwritev"), self._write),
            (("write",), self._write_on),
            (("ftruncate",), self._truncate),
            (("fsync", "fdatasync"), self._sync),
            (("rename", "replace"), self._rename),
            (("unlink", "remove"), self._unlink),
        ):
            for name in names:
                replace(name, self._wrapped(getattr(os, name), note))

    def _wrapped(self, call: Any, note: Callable[..., object]) -> Any:
        def recorded(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                result = call(*arguments, **named)
                note(result, *arguments, **named)
                return result

        return recorded

    def _path(self, path: Any, dir_fd: int | None = None) -> Path | None:
        """Return the path below `folder`, or None for other files."""
        base = Path.cwd() if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink()
        found = base / os.fsdecode(path)
        return found if found == self._folder or self._folder in found.parents else None

    def _note_path(self, name: str, path: Any, dir_fd: int | None = None) -> None:
        found = self._path(path, dir_fd)
        if found is not None:
            self._keep((name, str(found)))

    # One for each kind of call, with its result first

    def _opened(
        self, fd: int, path: Any, flags: int, mode: int = 0, *, dir_fd: int | None = None
    ) -> None:
        found = self._path(path, dir_fd)
        if found is not None:
            self._open.add(fd)
            self._keep(("open", fd, str(found), flags))

    def _closed(self, result: None, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            self._keep(("close", fd))

    def _write(self, count: int, fd: int, data: Any, offset: int, *_: Any) -> None:
        if fd in self._open:
            whole = b"".join(bytes(part) for part in data) if isinstance(data, tuple) else data
            text = base64.b64encode(bytes(whole)[:count]).decode()
            self._keep(("write", fd, offset, text))

    def _write_on(self, count: int, fd: int, data: Any) -> None:
        if fd in self._open:
            self._write(count, fd, data, os.lseek(fd, 0, os.SEEK_CUR) - count)

    def _truncate(self, result: None, fd: int, size: int) -> None:
        if fd in self._open:
            self._keep(("truncate", fd, size))

    def _sync(self, result: None, fd: int) -> None:
        if fd in self._open:
            self._keep(("sync", fd))

    def _rename(self, result: None, source: Any, target: Any) -> None:
        if self._path(source) is not None:
            self._keep(("rename", os.fspath(source), os.fspath(target)))

    def _unlink(self, result: None, path: Any, *, dir_fd: int | None = None) -> None:
        self._note_path("unlink", path, dir_fd)

    def _remove_dir(self, result: None, path: Any, *, dir_fd: int | None = None) -> None:
        self._note_path("rmdir", path, dir_fd)

    def _make_dir(
        self, result: None, path: Any, mode: int = 0, *, dir_fd: int | None = None
    ) -> None:
        self._note_path("mkdir", path, dir_fd)


class _Replay:
    """Descriptors of folders map to paths, descriptors of files to open files."""

    def __init__(self, folder: Path) -> None:
        self.disk = MemoryDisk(ManualClock())
        self.disk.make_dirs(folder.parent)
        self.disk.write_back()
        self._open: dict[int, MemoryFile | Path] = {}

    def play(self, call: Call) -> None:
        name, *arguments = call
        getattr(self, name)(*arguments)

    def open(self, fd: int, text: str, flags: int) -> None:
        path = Path(text)
        if self.disk.is_dir(path):
            self._open[fd] = path
            return
        file = self._open[fd] = self.disk.open(path, create=bool(flags & os.O_CREAT))
        if flags & os.O_TRUNC:
            file.truncate(0)

    def _file(self, fd: int) -> MemoryFile:
        file = self._open[fd]
        assert isinstance(file, MemoryFile)
        return file

    def close(self, fd: int) -> None:
        del self._open[fd]

    def write(self, fd: int, offset: int, text: str) -> None:
        self._file(fd).write_at(offset, base64.b64decode(text))

    def truncate(self, fd: int, size: int) -> None:
        self._file(fd).truncate(size)

    def sync(self, fd: int) -> None:
        file = self._open[fd]
        if isinstance(file, Path):
            self.disk.sync_dir(file)
        else:
            file.sync()

    def rename(self, source: str, target: str) -> None:
        self.disk.rename(Path(source), Path(target))

    def unlink(self, path: str) -> None:
        self.disk.remove(Path(path))

    def rmdir(self, path: str) -> None:
        self.disk.remove_tree(Path(path))

    def mkdir(self, path: str) -> None:
        self.disk.make_dirs(Path(path))


def after_power_failure(folder: Path, calls: list[Call]) -> MemoryDisk:
    """Return the disk after a power failure: only data synced since the creation of `folder`."""
    replay = _Replay(folder)
    for call in calls:
        replay.play(call)
    replay.disk.crash()
    return replay.disk


def read_calls(trace: Path) -> list[Call]:
    """The calls of one process or several; a line that a kill has cut short is left out."""
    whole = trace.read_text().rpartition("\n")[0]
    return [tuple(json.loads(line)) for line in whole.splitlines()]


def _run(trace: str, folder: str, *arguments: str) -> None:
    out = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    write = os.write
    recorder = Recorder(Path(folder), lambda call: write(out, json.dumps(call).encode() + b"\n"))
    recorder.install(lambda name, function: setattr(os, name, function))
    from lakelog.cli.main import main

    sys.argv = ["lakelog", *arguments]
    main()


if __name__ == "__main__":
    _run(*sys.argv[1:])
