"""Where a table is: enough to open it in another process, and to know that it is the same table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table import Table


class TableReplacedError(Exception):
    """The table was dropped, or dropped and created again, while a job was writing to it."""


@dataclass(frozen=True, slots=True)
class TableAddress:
    """`catalog` holds PyIceberg's properties of it; `identifier` is (namespace, name).

    `uuid` is that of the table; without one, whatever table has the name will do.
    """

    catalog: Mapping[str, str]
    identifier: tuple[str, str]
    uuid: str = ""

    def load(self) -> Table:
        """The table as it is now. Raises `TableReplacedError`."""
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
        found = str(table.metadata.table_uuid)
        if self.uuid and found != self.uuid:
            raise TableReplacedError(
                f"the table {name} was dropped and created again while the job was running (its "
                f"UUID is {found}, not {self.uuid}): start the job again to archive into the new "
                "table from where that one ends"
            )
        return table
