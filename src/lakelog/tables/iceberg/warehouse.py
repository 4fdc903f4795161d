"""Where a warehouse is.

Its tables may be anywhere that PyIceberg writes to. The catalog, Spark's checkpoints and Spark's
log are in a local folder: that of the tables, unless these are elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

REMOTE_SCHEMES = ("s3", "s3a", "gs", "abfs", "abfss", "hdfs")
CATALOG_NAME = "lakelog"
"""What PyIceberg calls the catalog: `PYICEBERG_CATALOG__LAKELOG__S3__ENDPOINT` and others of the
environment are settings of it."""


@dataclass(frozen=True, slots=True)
class Warehouse:
    """`location` is a URI, `folder` has the catalog."""

    location: str
    folder: Path

    @property
    def catalog(self) -> dict[str, str]:
        """PyIceberg's properties of the catalog, without those of the environment."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder / 'catalog.db'}",
            "warehouse": self.location,
        }


def is_remote(location: str) -> bool:
    """Raises `ValueError` for a URI that PyIceberg cannot write to."""
    scheme = urlsplit(location).scheme
    if scheme in ("", "file"):
        return False
    if scheme not in REMOTE_SCHEMES:
        known = ", ".join(f"{each}://" for each in REMOTE_SCHEMES)
        raise ValueError(
            f"a warehouse cannot be at {location!r}: name a folder, or a URI with one of {known}"
        )
    return True


def open_warehouse(location: str, folder: str | None = None) -> Warehouse:
    """Makes the local folder if it is missing.

    Raises `ValueError` when the folder cannot be written to, and for tables elsewhere without one.
    """
    if is_remote(location):
        if folder is None:
            raise ValueError(f"the catalog of {location} needs a local folder")
        return Warehouse(location.rstrip("/"), _writable(Path(folder).absolute()))
    parts = urlsplit(location)
    tables = Path(unquote(parts.path) if parts.scheme else location).absolute()
    _writable(tables)
    catalog = tables if folder is None else _writable(Path(folder).absolute())
    return Warehouse(tables.as_uri(), catalog)


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise ValueError(
            f"a warehouse must be a folder that can be written to: {folder}: {error.strerror}"
        ) from error
    return folder
