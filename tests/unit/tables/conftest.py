from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from lakelog.tables.iceberg import commits as commit_module
from lakelog.tables.iceberg.address import TableAddress
from unit.tables.archive_table import new_table


@pytest.fixture
def address(tmp_path: Path) -> TableAddress:
    """The address of a new table of the archive."""
    return new_table(tmp_path)


@pytest.fixture
def on_two_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have writers commit as on two hosts: without turns, so that commits meet."""
    monkeypatch.setattr(commit_module, "_locked", lambda _: nullcontext())
