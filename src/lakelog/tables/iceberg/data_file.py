"""Data files that are being written, in a local folder or in a store that PyIceberg can write to.

When `writing` ends without an exception the file is durable. The commit depends on that: a table
must not name a file that a power failure may remove.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from lakelog.base.errors import NO_SPACE
from lakelog.tables.iceberg.warehouse import WarehouseFullError, is_remote

if TYPE_CHECKING:
    import pyarrow as pa

_UNWRITABLE = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EFBIG,
)


class FolderUnwritableError(OSError):
    """This host cannot write into a folder of the warehouse."""


class DataFile(Protocol):
    """A file to write once. `remove` may be called whether or not the file exists."""

    def writing(self) -> contextlib.AbstractContextManager[Any]: ...

    def remove(self) -> None: ...


def data_file(location: str, catalog: Mapping[str, str]) -> DataFile:
    """Return the file at a URI.

    catalog: PyIceberg's properties, for remote files. Raises `ValueError` for an unknown scheme.
    """
    return RemoteFile(location, catalog) if is_remote(location) else LocalFile(location)


def open_input(location: str, catalog: Mapping[str, str]) -> Any:
    """Open a data file for reading; return a file object with random access.

    catalog: PyIceberg's properties, for remote files. Raises `FileNotFoundError`, `OSError`, and
    `ValueError` for an unknown scheme.
    """
    if not is_remote(location):
        return Path(unquote(urlsplit(location).path)).open("rb")
    from lakelog.tables.iceberg.catalog import open_file_io

    return open_file_io(catalog, location).new_input(location).open()


def deleted_rows(path: str, deletes: Iterable[str], catalog: Mapping[str, str]) -> pa.Array | None:
    """Return the positions that delete files name for a data file (Iceberg spec, v2), if any."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    chunks: list[pa.Array] = []
    for delete_file in deletes:
        with open_input(delete_file, catalog) as source:
            rows = pq.read_table(source, columns=["file_path", "pos"])
        chunks += rows.filter(pc.equal(rows.column(0), path)).column(1).chunks
    return pa.chunked_array(chunks, pa.int64()).combine_chunks() if chunks else None


def are_there(deleted: pa.Array, position: int, count: int) -> pa.Array:
    """Return for each of `count` rows from `position` on whether it is not deleted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    positions = pa.array(range(position, position + count), pa.int64())
    return pc.invert(pc.is_in(positions, value_set=deleted))


class LocalFile:
    """A file on this host; its folder is created, and synced after the file."""

    def __init__(self, location: str) -> None:
        self._path = Path(unquote(urlsplit(location).path))

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """Raises `FolderUnwritableError` and `WarehouseFullError`, also while the caller writes."""
        with _naming_folder(self._path.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(self._path.parent)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


class RemoteFile:
    """A file in an object store or HDFS."""

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


@contextmanager
def _naming_folder(folder: Path) -> Iterator[None]:
    """Raise errors about permission and space with the names of host and folder.

    A worker may be on another host than the job, with other rights and another disk.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise WarehouseFullError(
                f"host {socket.gethostname()} cannot write to the warehouse folder {folder}: "
                f"{error.strerror}. Free space there"
            ) from error
        if error.errno not in _UNWRITABLE:
            raise
        raise FolderUnwritableError(
            f"host {socket.gethostname()} cannot write to the warehouse folder {folder}: "
            f"{error.strerror}. Every host of the job needs write access there"
        ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
