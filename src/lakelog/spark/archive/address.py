"""Where a table is: enough to open it in another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class TableAddress:
    """`catalog` holds PyIceberg's properties of it; `identifier` is (namespace, name)."""

    catalog: Mapping[str, str]
    identifier: tuple[str, str]

    def load(self) -> Table:
        from lakelog.spark.archive.table import open_catalog

        return open_catalog(self.catalog).load_table(self.identifier)
