from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.table import ensure_table
from lakelog.tables.upkeep.removal import is_unfinished, remove
from unit.tables.archive_table import write_batch


class DeathError(Exception):
    """The process ends here."""


@pytest.fixture
def stored(address: TableAddress, tmp_path: Path) -> Callable[[], list[Path]]:
    """Lists the files of a table with rows."""
    commit_batch(address, write_batch(address, 0, 3))

    def stored() -> list[Path]:
        return [path for path in tmp_path.rglob("*.*") if path.suffix in (".parquet", ".avro")] + [
            *tmp_path.rglob("*.metadata.json")
        ]

    assert len(stored()) > 3
    return stored


def dying(real: Callable[..., Any], step: int) -> Callable[..., Any]:
    """Return a function that dies in its call `step`; a negative one means after that call."""
    calls = iter(range(1, 1000))

    def call(*args: Any, **kwargs: Any) -> Any:
        number = next(calls)
        if number == step:
            raise DeathError
        done = real(*args, **kwargs)
        if number == -step:
            raise DeathError
        return done

    return call


@pytest.mark.parametrize(
    ("method", "step"),
    [
        ("rename_table", 1),
        ("rename_table", -1),
        ("delete", 1),
        ("delete", -3),
        ("drop_table", 1),
        ("drop_table", -1),
    ],
)
def test_a_removal_that_died_anywhere_is_completed(
    address: TableAddress,
    stored: Callable[[], list[Path]],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    step: int,
) -> None:
    owner = PyArrowFileIO if method == "delete" else SqlCatalog
    files = len(stored())
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, dying(getattr(owner, method), step))
        with pytest.raises(DeathError):
            remove(address, purge=True)
    left = len(stored())
    is_begun = (method, step) != ("rename_table", 1)
    assert (address.exists(), is_unfinished(address)) == (not is_begun, _has_entry(address))
    assert left == files or not address.exists(), "a table in the catalog has its files"

    # The table has left the catalog before its last file, the metadata.
    orphans = left if (method, step) == ("drop_table", -1) else 0
    assert orphans <= 1
    assert remove(address, purge=True) >= left - orphans
    assert not address.exists()
    assert not is_unfinished(address)
    assert len(stored()) == orphans
    assert remove(address, purge=True) == 0


def _has_entry(address: TableAddress) -> bool:
    catalog = SqlCatalog("lakelog", **address.catalog)
    return ("lakelog", f"{address.identifier[1]}~dropped") in catalog.list_tables("lakelog")


def test_a_new_table_of_the_name_is_not_part_of_an_old_removal(
    address: TableAddress, stored: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFileIO, "delete", dying(PyArrowFileIO.delete, 1))
        with pytest.raises(DeathError):
            remove(address, purge=True)
    assert is_unfinished(address)
    new = ensure_table(TableAddress(address.catalog, address.identifier))
    assert not is_unfinished(address)
    remove(address, purge=False)
    assert [path for path in stored() if str(path).endswith(".json")] == [
        Path(new.metadata_location.removeprefix("file://"))
    ], "files that were to be deleted are, and the files of the new table stay"


def test_a_warehouse_that_is_away_keeps_its_table(
    address: TableAddress, stored: Callable[[], list[Path]], tmp_path: Path
) -> None:
    files = len(stored())
    folder, away = tmp_path / "lakelog", tmp_path / "away"
    folder.rename(away)
    with pytest.raises(FileNotFoundError):
        remove(address, purge=True)
    away.rename(folder)
    assert address.exists()
    assert remove(address, purge=True) >= files
    assert not stored()


def test_a_file_that_a_job_adds_meanwhile_is_deleted(
    address: TableAddress, stored: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    late, delete = stored()[0].with_name("late.parquet"), PyArrowFileIO.delete
    adds = iter([True])

    def delete_and_add(io: PyArrowFileIO, path: str) -> None:
        if next(adds, False):
            late.touch()
        delete(io, path)

    monkeypatch.setattr(PyArrowFileIO, "delete", delete_and_add)
    remove(address, purge=True)
    assert not stored()


@pytest.mark.parametrize("other_is_inside", [True, False])
def test_a_folder_that_another_table_shares_is_not_deleted(
    address: TableAddress, stored: Callable[[], list[Path]], other_is_inside: bool
) -> None:
    folder = address.load().location()
    shared = f"{folder}/inside" if other_is_inside else folder.rpartition("/")[0]
    catalog, files = SqlCatalog("lakelog", **address.catalog), len(stored())
    schema = address.load().schema()
    catalog.create_table(("lakelog", "guest"), schema, location=shared)
    with pytest.raises(ValueError, match=r"also has the table lakelog\.guest: drop it without"):
        remove(address, purge=True)
    assert address.exists()
    assert len(stored()) == files + 1
    remove(address, purge=False)
    assert not address.exists()


def test_a_folder_with_the_catalog_is_not_deleted(tmp_path: Path, address: TableAddress) -> None:
    catalog = SqlCatalog("lakelog", **address.catalog)
    schema = address.load().schema()
    catalog.create_table(("lakelog", "wide"), schema, location=tmp_path.as_uri())
    wide = TableAddress(address.catalog, ("lakelog", "wide"))
    with pytest.raises(ValueError, match=r"also has the catalog .*catalog\.db, the table"):
        remove(wide, purge=True)


def test_a_catalog_without_the_namespace_has_nothing_to_remove(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}"}
    SqlCatalog("lakelog", **properties)
    address = TableAddress(properties, ("lakelog", "orders"))
    assert remove(address, purge=True) == 0
    assert remove(address, purge=False) == 0


def test_a_missing_catalog_has_nothing_to_remove_and_is_not_created(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'gone.db'}"
    address = TableAddress({"type": "sql", "uri": uri}, ("lakelog", "orders"))
    assert remove(address, purge=True) == 0
    assert not is_unfinished(address)
    assert not list(tmp_path.iterdir())
