from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakelog.spark.archive.address import TableAddress
from lakelog.spark.archive.table import ensure_table
from lakelog.spark.archive.warehouse import open_warehouse


@pytest.fixture
def address(tmp_path: Path) -> TableAddress:
    """Of a new table of the archive."""
    address = TableAddress(open_warehouse(str(tmp_path)).catalog, ("lakelog", "orders"))
    return replace(address, uuid=str(ensure_table(address).metadata.table_uuid))
