"""The files of a metadata log: the SQLite database and the note of its committed end beside it.

`DatabaseFile` keeps them in the file system; the simulation has an implementation of its own over
its simulated disk (`tests/doubles/sqlite_metadata.py`).
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from lakelog.metadata.errors import MetadataCorrupt, MetadataUnavailable
from lakelog.metadata.store.committed import note_committed, read_committed

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
        """Write the note (`committed.py`). Not durable. Raises `OSError`."""
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
            found = self._identity()
        except OSError as error:
            raise MetadataUnavailable(
                f"{self.path}: {error.strerror}; put the file back, or stop the brokers that use it"
            ) from error
        if found != self._connected:
            raise MetadataCorrupt(
                f"{self.path} was replaced while a broker used it; the next start compares the "
                "new file with the data folder"
            )

    def _identity(self) -> tuple[int, int]:
        found = os.stat(self.path)  # noqa: PTH116 - a tenth of the time of `Path.stat`
        return found.st_dev, found.st_ino

    def note_committed(self, end: int, controller_epoch: int) -> None:
        note_committed(self._end_path, end, controller_epoch)

    def read_committed(self) -> tuple[int, int]:
        return read_committed(self._end_path)
