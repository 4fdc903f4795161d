"""A file system in memory, which a run fills and empties while a broker uses it.

It is mounted in the namespace of the run, and ends with it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

_SIZE = 1 << 30
_TRIES = 20


class SmallDisk:
    """A context manager: a file system at a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        self._folder.mkdir()
        _mount("-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(self._folder))
        return self

    def __exit__(self, *_: object) -> None:
        # Logs of its broker stand beside the folder. A process may still have files open.
        subprocess.run(["umount", "--lazy", str(self._folder)], check=True)

    def fill(self) -> None:
        """Leave no room: the file system becomes as small as its contents."""
        for attempt in range(1, _TRIES + 1):
            found = os.statvfs(self._folder)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            try:
                self._resize(used)
                return
            except OSError:  # its broker has written in between
                if attempt == _TRIES:
                    raise

    def free_capacity(self) -> None:
        self._resize(_SIZE)

    def _resize(self, size: int) -> None:
        _mount("-o", f"remount,size={size}", str(self._folder))


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"mount {' '.join(arguments)}: {done.stderr.strip()}")
