"""A data file while it is written, on this machine or where PyIceberg reaches.

Once `writing` has ended without an exception the file is durable: the table's commit will promise
that it is there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from lakelog.tables.iceberg.warehouse import is_remote


class DataFile(Protocol):
    """`writing` gives a binary file to write to; `remove` is allowed whatever became of it."""

    def writing(self) -> contextlib.AbstractContextManager[Any]: ...

    def remove(self) -> None: ...


def data_file(location: str, catalog: Mapping[str, str]) -> DataFile:
    """The file at a URI. `catalog` holds PyIceberg's properties."""
    return RemoteFile(location, catalog) if is_remote(location) else LocalFile(location)


class LocalFile:
    def __init__(self, location: str) -> None:
        self._path = Path(unquote(urlsplit(location).path))

    @contextmanager
    def writing(self) -> Iterator[Any]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self._path.parent)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


class RemoteFile:
    def __init__(self, location: str, catalog: Mapping[str, str]) -> None:
        from lakelog.tables.iceberg.catalog import open_file_io

        self._io = open_file_io(catalog, location)
        self._location = location

    @contextmanager
    def writing(self) -> Iterator[Any]:
        with self._io.new_output(self._location).create() as file:
            yield file

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._io.delete(self._location)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
