"""A disk that is slow to open a file for writing: another process has a lease on it.

The kernel blocks `open` until the holder releases the lease, or for `LEASE_S` (fcntl(2),
`F_SETLEASE`). Neither root nor a file system of its own is needed.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

LEASE_S = int(Path("/proc/sys/fs/lease-break-time").read_text())
"""Seconds after which a waiting `open` returns in any case."""


@contextmanager
def late_opens(paths: Sequence[Path]) -> Iterator[None]:
    """Block each process that opens one of the files for writing within the block.

    Raises `OSError` if the file system has no leases, or a process writes to a file.
    """
    files: list[int] = []
    try:
        for path in paths:
            files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            # The kernel reports each waiting process, by default with a signal that ends this one.
            fcntl.fcntl(files[-1], fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(files[-1], fcntl.F_SETLEASE, fcntl.F_RDLCK)
        yield
    finally:
        for file in files:
            os.close(file)
