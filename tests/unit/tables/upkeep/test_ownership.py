from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from lakelog.client.admin.api import Admin
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg.warehouse import open_warehouse
from lakelog.tables.upkeep.ownership import create, drop
from unit.tables.archive_table import files, write_batch


class Cluster:
    """A stand-in for `Admin` with the keys of one topic; its groups cannot be deleted."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.configs = SimpleNamespace(
            alter=lambda _kind, _name, values: self.values.update(values)
        )


def test_a_topic_gets_a_table_and_loses_it(tmp_path: Path) -> None:
    cluster = Cluster()
    admin, place = cast("Admin", cluster), open_warehouse(str(tmp_path))
    address = create(admin, "orders", place, "sales")
    assert cluster.values == {
        "table.enable": "true",
        "table.name": "sales",
        "table.warehouse": str(tmp_path),
        "table.catalog": "",
    }
    assert create(admin, "orders", place, "sales") == address, "it may be repeated"
    commit_batch(address, write_batch(address, 0, 3))
    assert files(address) == 1

    assert drop(admin, "orders", address, purge=True) >= 1
    assert set(cluster.values.values()) == {None}
    assert not address.exists()
    assert not list(tmp_path.rglob("*.parquet"))
    assert drop(admin, "orders", address, purge=True) == 0, "it may be repeated"


def test_without_purge_the_files_stay(tmp_path: Path) -> None:
    admin = cast("Admin", Cluster())
    address = create(admin, "orders", open_warehouse(str(tmp_path)), "orders")
    commit_batch(address, write_batch(address, 0, 3))
    assert drop(admin, "orders", address, purge=False) == 0
    assert list(tmp_path.rglob("*.parquet"))
