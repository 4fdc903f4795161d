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

    assert remove(address, purge=True) >= left
    assert not address.exists()
    assert not is_unfinished(address)
    assert not stored()
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


def test_a_missing_catalog_has_nothing_to_remove_and_is_not_created(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'gone.db'}"
    address = TableAddress({"type": "sql", "uri": uri}, ("lakelog", "orders"))
    assert remove(address, purge=True) == 0
    assert not is_unfinished(address)
    assert not list(tmp_path.iterdir())
