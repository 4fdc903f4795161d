"""The place of a warehouse.

Its tables may be in any store that PyIceberg can write to. The catalog, Spark's checkpoints and
Spark's log are in a local folder, by default the folder of the tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

REMOTE_SCHEMES = ("s3", "s3a", "gs", "abfs", "abfss", "hdfs")
NAMESPACE = "lakelog"
"""The namespace of all tables of archives."""
_TABLE_NAME = re.compile(r"[A-Za-z0-9._-]{1,300}", re.ASCII)
CATALOG_NAME = "lakelog"
"""The catalog's name in PyIceberg.

Variables of the environment such as `PYICEBERG_CATALOG__LAKELOG__S3__ENDPOINT` configure it."""


class WarehouseFullError(OSError):
    """A disk of the warehouse or of its catalog, or its quota, is full."""


@dataclass(frozen=True, slots=True)
class Warehouse:
    """location: the URI of the tables. folder: the local folder of the catalog."""

    location: str
    folder: Path

    @property
    def catalog(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog, except the environment's."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder / 'catalog.db'}",
            "warehouse": self.location,
        }


def check_table_name(name: str) -> None:
    """Raise `ValueError` if a table of this name would be in another folder of the warehouse."""
    if not _TABLE_NAME.fullmatch(name) or name in (".", ".."):
        raise ValueError(
            f"{name!r} is not a name of a table: use the characters a-z, A-Z, 0-9, '.', '_' and '-'"
        )


def is_remote(location: str) -> bool:
    """Return whether `location` is in an object store or HDFS.

    Raises `ValueError` for any other scheme than `file`.
    """
    scheme = urlsplit(location).scheme
    if scheme in ("", "file"):
        return False
    if scheme not in REMOTE_SCHEMES:
        schemes = ", ".join(f"{scheme}://" for scheme in REMOTE_SCHEMES)
        raise ValueError(
            f"unsupported warehouse {location!r}: expected a folder, or a URI with one of {schemes}"
        )
    return True


def open_warehouse(location: str, folder: str | None = None) -> Warehouse:
    """Return the warehouse at `location`; create its local folder if it is missing.

    folder: the local folder for the catalog; required if the tables are remote. Raises `ValueError`
    if it is missing then, if the folder cannot be written to, for a local path that a URI cannot
    have as it is, and for an unsupported scheme.
    """
    warehouse = warehouse_at(location, folder)
    if not is_remote(location):
        tables = Path(unquote(urlsplit(warehouse.location).path))
        # PyIceberg reads and writes the path of the URI, without decoding it.
        if warehouse.location != f"file://{tables}":
            raise ValueError(
                f"the warehouse folder {str(tables)!r} has a space or another character that a URI "
                "has to encode: choose a path of letters, digits and . _ - ~"
            )
        _writable(tables)
    _writable(warehouse.folder)
    return warehouse


def warehouse_at(location: str, folder: str | None = None) -> Warehouse:
    """Return an existing warehouse, without any access to it. Arguments as in `open_warehouse`.

    Raises `ValueError` for an unsupported scheme, or if a remote warehouse has no folder.
    """
    if is_remote(location):
        if folder is None:
            raise ValueError(f"the catalog of {location} needs a local folder")
        return Warehouse(location.rstrip("/"), Path(folder).absolute())
    parts = urlsplit(location)
    tables = Path(unquote(parts.path) if parts.scheme else location).absolute()
    return Warehouse(tables.as_uri(), tables if folder is None else Path(folder).absolute())


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise ValueError(
            f"cannot write to the warehouse folder {folder}: {error.strerror}"
        ) from error
    return folder
