from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.tables.iceberg.address import TableAddress
from unit.tables.archive_table import new_table


@pytest.fixture
def address(tmp_path: Path) -> TableAddress:
    """The address of a new table of the archive."""
    return new_table(tmp_path)
