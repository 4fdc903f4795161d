"""The address of a table, with which any process opens it and detects that it was replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyiceberg.table import Table


class TableReplacedError(Exception):
    """The table was dropped, or dropped and created again, while a job was writing to it."""


@dataclass(frozen=True, slots=True)
class TableAddress:
    """The place of a table in a catalog.

    catalog: PyIceberg's properties of the catalog. identifier: (namespace, name). uuid: the
    table's; if it is empty, any table of this name is accepted.
    """

    catalog: Mapping[str, str]
    identifier: tuple[str, str]
    uuid: str = ""

    def exists(self) -> bool:
        """Return whether there is a table of this name.

        Raises `OSError` and the errors of the catalog. A missing catalog has no tables.
        """
        from lakelog.tables.iceberg.catalog import open_catalog

        return self.catalog_exists() and bool(
            open_catalog(self.catalog).table_exists(self.identifier)
        )

    def catalog_exists(self) -> bool:
        """Return false if the catalog is a SQLite file that is missing: opening it creates it."""
        file = self.catalog_file
        return file is None or file.exists()

    @property
    def catalog_file(self) -> Path | None:
        """The SQLite file of the catalog; `None` for another kind."""
        uri = self.catalog.get("uri", "")
        is_file = uri.startswith("sqlite:")
        return Path(urlsplit(uri).path.removeprefix("/")) if is_file else None

    def load(self) -> Table:
        """Return the table's present version. Raises `TableReplacedError`."""
        from pyiceberg.exceptions import NoSuchTableError

        from lakelog.tables.iceberg.catalog import open_catalog

        name = ".".join(self.identifier)
        try:
            table = open_catalog(self.catalog).load_table(self.identifier)
        except NoSuchTableError as error:
            raise TableReplacedError(
                f"the table {name} was dropped while the job was running: start it again to "
                "archive into a new table"
            ) from error
        actual = str(table.metadata.table_uuid)
        if self.uuid and actual != self.uuid:
            raise TableReplacedError(
                f"the table {name} was dropped and created again while the job was running (its "
                f"UUID is {actual}, not {self.uuid}): start the job again to archive into the new "
                "table from where that one ends"
            )
        return table
