"""Turns of the writers of a table: on one host they commit one after another.

Iceberg's commits are optimistic: a commit fails if another came after its table was loaded. A
commit that replaces files reads all manifests in between. Beside a job that appends often it would
fail each time, and the longer it fails the more manifests there are. So a writer locks the table's
folder from the load to the commit.

The catalog alone keeps commits correct. A writer continues without the lock if the folder is not on
this host, cannot be locked, or stays locked for long, as by a stopped process.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from urllib.parse import unquote, urlsplit

from pyiceberg.table import Table

from lakelog.client.retry import pauses
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.table import load_for_commit

_ATTEMPTS_MAX = 16
_POLL_S = 0.01
_WAIT_MAX_S = 30.0


def attempts() -> Iterator[None]:
    """Return an iterator of the 16 attempts of a commit, which pauses before each but the first."""
    yield
    for pause_s in islice(pauses(), _ATTEMPTS_MAX - 1):
        time.sleep(pause_s)
        yield


@contextmanager
def turn(address: TableAddress) -> Iterator[Table]:
    """Load the table; no other writer of this host commits to it until the end of the block.

    A block must not take another turn of the same table. Raises as `load_for_commit`.
    """
    path = _folder(tuple(sorted(address.catalog.items())), address.identifier, address.uuid)
    fd = None if path is None else _open_locked(path)
    try:
        yield load_for_commit(address)
    finally:
        if fd is not None:
            os.close(fd)


@lru_cache
def _folder(
    catalog: tuple[tuple[str, str], ...], identifier: tuple[str, str], table_uuid: str
) -> str | None:
    """Return the path of the table's folder; `None` if it is not on this host."""
    url = urlsplit(TableAddress(dict(catalog), identifier, table_uuid).load().location())
    return unquote(url.path) if url.scheme in {"", "file"} else None


def _open_locked(path: str) -> int | None:
    """Open a folder and lock it; return `None` if that is not possible or takes too long."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    end_s = time.monotonic() + _WAIT_MAX_S
    while time.monotonic() < end_s:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_POLL_S)
        except OSError:  # a file system without locks, or without locks of folders
            break
        else:
            return fd
    os.close(fd)
    return None
