"""Creates the file of a log that was moved from another store: whole and durable, or not at all.

The file is written under another name and then linked to its own, which fails if a file has it.
"""

from __future__ import annotations

import os
from pathlib import Path

from lakelog.metadata.errors import MetadataNotEmpty, MetadataUnavailable
from lakelog.metadata.store.api import LogState
from lakelog.metadata.store.database import DatabaseFile
from lakelog.metadata.store.sqlite import SqliteLog

_SUFFIXES = ("", "-wal", "-shm", "-end")


def load_file(path: Path, state: LogState, payload: bytes) -> None:
    """Create the file of a log that ends at `state`, with the records of its image.

    Raises `MetadataNotEmpty` and `MetadataUnavailable`.
    """
    files = [file for suffix in _SUFFIXES if (file := _beside(path, suffix)).exists()]
    if files:
        raise MetadataNotEmpty(f"{files[0]} exists already; choose another file, or move it away")
    made = _beside(path, ".new")
    try:
        _remove(made)
        _write(made, state, payload)
        os.link(made, path)
        _sync(path.parent)
    except FileExistsError:
        raise MetadataNotEmpty(f"{path} exists already; choose another file") from None
    except OSError as error:
        raise MetadataUnavailable(f"{path}: {error.strerror or error}") from error
    finally:
        _remove(made)


def _write(path: Path, state: LogState, payload: bytes) -> None:
    log = SqliteLog(DatabaseFile(path))
    log.open(create=True)
    try:
        log.load(state, payload)
    finally:
        log.close()  # which moves the journal into the file
    _sync(path)


def _remove(path: Path) -> None:
    for suffix in _SUFFIXES:
        _beside(path, suffix).unlink(missing_ok=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
