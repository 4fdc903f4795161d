"""The lock of the writers of a table: on one host they commit one after another.

Iceberg's commits are optimistic: a commit fails if another came after its table was loaded. A
commit that replaces files reads all manifests in between. Beside a job that appends often, each of
its attempts would fail, and the files that are appended meanwhile make the next ones slower. So
appends, exchanges of files and expiries lock the table's folder from the load to the commit.

The catalog alone keeps commits correct. A writer continues without the lock if the folder is not on
this host, cannot be locked, or stays locked for long, as by a stopped process.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from itertools import islice
from urllib.parse import unquote, urlsplit

from pyiceberg.table import Table

from lakelog.base.events import event
from lakelog.client.errors import pauses
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.table import load_for_commit

_log = logging.getLogger("lakelog.tables")
_ATTEMPTS_MAX = 16
_POLL_S = 0.01
_WAIT_MAX_S = 10.0
_stuck: set[str] = set()
"""Folders that stayed locked: the next writer does not wait for them again."""


def attempts() -> Iterator[None]:
    """Return an iterator of the 16 attempts of a commit, which pauses before each but the first."""
    yield
    for pause_s in islice(pauses(), _ATTEMPTS_MAX - 1):
        time.sleep(pause_s)
        yield


@contextmanager
def locked_for_commit(address: TableAddress) -> Iterator[Table]:
    """Load the table; no other append, exchange or expiry of this host commits during the block.

    A block must not lock the same table again. Raises as `load_for_commit`.
    """
    path = _folder(tuple(sorted(address.catalog.items())), address.identifier, address.uuid)
    with nullcontext() if path is None else _locked(path):
        yield load_for_commit(address)


@lru_cache
def _folder(
    catalog: tuple[tuple[str, str], ...], identifier: tuple[str, str], table_uuid: str
) -> str | None:
    """Return the path of the table's folder; `None` if it is not on this host."""
    url = urlsplit(TableAddress(dict(catalog), identifier, table_uuid).load().location())
    return unquote(url.path) if url.scheme in {"", "file"} else None


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Lock the folder during the block, if that is possible soon."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        _wait_for_lock(fd, path)
        yield
    finally:
        # A process that was forked meanwhile keeps the folder open, and so the lock.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _wait_for_lock(fd: int, path: str) -> None:
    end_s = time.monotonic() + (0 if path in _stuck else _WAIT_MAX_S)
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end_s:
                break
            time.sleep(_POLL_S)
        except OSError:  # a file system without locks, or without locks of folders
            return
        else:
            _stuck.discard(path)
            return
    if path not in _stuck:
        _stuck.add(path)
        _log.warning(
            "another process has locked %s for %g s: commits no longer wait for it",
            path,
            _WAIT_MAX_S,
            extra=event("table_lock_ignored", path=path),
        )
