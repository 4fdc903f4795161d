"""The files of a metadata log: the SQLite database and the note of its committed end beside it.

`DatabaseFile` keeps them in the file system; the simulation has an implementation of its own over
its simulated disk (`tests/doubles/sqlite_metadata.py`).

The note is 24 bytes in `metadata.db-end`:

    0 index of the next entry u64   8 controller epoch u64   16 CRC-32 of that u32   20 zero

SQLite treats a damaged frame of its journal, and all frames after it, as the torn end of the
journal: a flipped bit would silently undo acknowledged commits. At a start the store therefore
compares the end of the log with this note. The note is written after each commit and never synced.
After a power failure it may be old; then it detects less, but it is never wrong.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from lakelog.base.events import event
from lakelog.metadata.errors import MetadataCorrupt, MetadataUnavailable

_FORM = struct.Struct(">QQII")
_COVERED = 16
_logger = logging.getLogger(__name__)


def note_committed(path: Path, end: int, controller_epoch: int) -> None:
    """Write the note in place of the old one. Not durable. Raises `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, os.write(descriptor, encode_note(end, controller_epoch)))
    finally:
        os.close(descriptor)


def encode_note(end: int, controller_epoch: int) -> bytes:
    """Return the 24 bytes of the note.

    The form is at the top of this module.
    """
    head = struct.pack(">QQ", end, controller_epoch)
    return head + struct.pack(">II", zlib.crc32(head), 0)


def read_committed(path: Path) -> tuple[int, int]:
    """Return the noted end and controller epoch, or (0, 0) if there is no valid note.

    Raises `OSError`.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0, 0
    return decode_note(path, data)


def decode_note(path: Path, data: bytes) -> tuple[int, int]:
    """Return the noted end and controller epoch, or (0, 0) and a log line for a damaged note."""
    if len(data) == _FORM.size:
        end, epoch, checksum, rest = _FORM.unpack(data)
        if checksum == zlib.crc32(data[:_COVERED]) and not rest:
            return end, epoch
    _logger.warning(
        "%s is damaged and will be rebuilt", path, extra=event("file_rebuilt", path=path)
    )
    return 0, 0


BUSY_TIMEOUT_S = 5.0


class Database(Protocol):
    """The files of one metadata log."""

    @property
    def path(self) -> Path: ...

    def exists(self) -> bool: ...

    def connect(self) -> sqlite3.Connection:
        """Return a connection in autocommit mode; create the file if needed.

        Raises `sqlite3.Error`.
        """
        ...

    def check_place(self) -> None:
        """Require that the path still names the file of the last `connect`.

        Raises `MetadataUnavailable` if it names no file, and `MetadataCorrupt` for another one.
        """
        ...

    def note_committed(self, end: int, controller_epoch: int) -> None:
        """Write the note. Not durable. Raises `OSError`."""
        ...

    def read_committed(self) -> tuple[int, int]:
        """Return the noted end and controller epoch, or (0, 0) if there is no valid note."""
        ...


class DatabaseFile:
    """A `Database` in the file system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end_path = path.with_name(path.name + "-end")
        self._connected: tuple[int, int] | None = None

    def exists(self) -> bool:
        return self.path.exists()

    def connect(self) -> sqlite3.Connection:
        # SQLite would create a file that others can read; its journals copy the file's permissions.
        with suppress(OSError):  # SQLite then raises an error of its own
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        with suppress(OSError):
            self._connected = self._identity()
        return connection

    def check_place(self) -> None:
        # SQLite would go on with a file that was moved away, and other processes with another one.
        try:
            identity = self._identity()
        except OSError as error:
            raise MetadataUnavailable(
                f"{self.path}: {error.strerror}; put the file back, or stop the brokers that use it"
            ) from error
        if identity != self._connected:
            raise MetadataCorrupt(
                f"{self.path} was replaced while a broker used it; the next start compares the "
                "new file with the data folder"
            )

    def _identity(self) -> tuple[int, int]:
        status = os.stat(self.path)  # noqa: PTH116 - a tenth of the time of `Path.stat`
        return status.st_dev, status.st_ino

    def note_committed(self, end: int, controller_epoch: int) -> None:
        note_committed(self._end_path, end, controller_epoch)

    def read_committed(self) -> tuple[int, int]:
        return read_committed(self._end_path)
