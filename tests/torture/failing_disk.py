"""A disk that fails with EIO, for a broker in a process of its own.

The kernel fails operations of a device only with modules that a test cannot count on (dm-error), or
as root with a file system on a loop device. So the error enters at the functions of `os` by which
a Python process reaches its files. They are replaced before the first line of the broker runs, and
fail while the run says so, for files of one folder. Its helper processes have the same disk.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORKS = "nothing"
KINDS = (WORKS, "writes", "syncs", "reads")
_OPERATIONS = {
    "writes": ("write", "pwrite", "pwritev", "ftruncate", "posix_fallocate", "fsync", "fdatasync"),
    "syncs": ("fsync", "fdatasync"),
    "reads": ("read", "pread", "preadv", "sendfile"),
}
"""What fails, as functions of `os` that take a descriptor first; `sendfile` takes it second."""
_FOLDER, _CONTROL = "FAILING_DISK_FOLDER", "FAILING_DISK_CONTROL"
_INTERPOSER = Path(__file__).with_name("interposer")


class FailingDisk:
    """The run's side: decides which operations fail in the folder.

    Args:
        control: a file for the state, which the broker's process maps.
    """

    def __init__(self, folder: Path, control: Path) -> None:
        self._folder = folder
        self._control = control
        self._control.write_bytes(bytes(1))

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words before the command of a process with this disk."""
        paths = (_INTERPOSER, Path(__file__).parents[1], os.environ.get("PYTHONPATH", ""))
        return (
            "env",
            f"PYTHONPATH={os.pathsep.join(map(str, paths))}",
            f"{_FOLDER}={self._folder}",
            f"{_CONTROL}={self._control}",
        )

    def fail(self, kind: str) -> None:
        """Fail operations of a kind from now on, or none (`WORKS`)."""
        with self._control.open("r+b") as file:
            file.write(bytes([KINDS.index(kind)]))


def interpose() -> None:
    """Replace the functions of `os` in this process, if its environment names a failing disk."""
    if _CONTROL not in os.environ:
        return
    with Path(os.environ[_CONTROL]).open("r+b") as file:
        state = mmap.mmap(file.fileno(), 1)
    folder = os.environ[_FOLDER] + os.sep
    for name in {name for names in _OPERATIONS.values() for name in names}:
        kinds = bytes(KINDS.index(kind) for kind, names in _OPERATIONS.items() if name in names)
        setattr(os, name, _failing(getattr(os, name), state, kinds, folder))


def _failing(
    function: Callable[..., Any], state: mmap.mmap, kinds: bytes, folder: str
) -> Callable[..., Any]:
    """Return the function, which fails for files of the folder while the state is one of `kinds`.

    Otherwise it costs one look at a mapped byte.
    """
    position = 1 if function is os.sendfile else 0

    def call(*arguments: Any, **named: Any) -> Any:
        if state[0] in kinds and _path_of(arguments[position]).startswith(folder):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return function(*arguments, **named)

    return call


def _path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - no Path for each call
    except OSError:
        return ""
