"""Lists the files of a table in its store, which Iceberg itself never does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakelog.tables.iceberg.warehouse import is_remote


class StoredFile(NamedTuple):
    """A file of a store. modified_s: seconds since the epoch."""

    path: str
    size: int
    modified_s: float


def stored_files(io: FileIO, location: str) -> Iterator[StoredFile]:
    """Yield the files below a location, with paths as the table's metadata writes them.

    Raises `OSError`, and `ValueError` for a store that PyIceberg does not access through PyArrow.
    """
    if not is_remote(location):
        root = Path(unquote(urlsplit(location).path))
        for path in sorted(root.rglob("*")):
            if path.is_file():
                found = path.stat()
                name = f"{location}/{path.relative_to(root)}"
                yield StoredFile(name, found.st_size, found.st_mtime)
        return
    if not isinstance(io, PyArrowFileIO):
        raise ValueError(f"files of {location} cannot be listed: PyIceberg needs PyArrow for that")
    parts = urlsplit(location)
    system = io.fs_by_scheme(parts.scheme, parts.netloc)
    root_path = f"{parts.netloc}{parts.path}"
    selector = pafs.FileSelector(root_path, recursive=True, allow_not_found=True)
    for info in system.get_file_info(selector):
        if info.type == pafs.FileType.File:
            name = f"{location}{info.path.removeprefix(root_path)}"
            yield StoredFile(name, info.size or 0, (info.mtime_ns or 0) / 1e9)
