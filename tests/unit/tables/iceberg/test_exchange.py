from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg import commit_lock
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import CatalogLockedError, CatalogUnwritableError
from lakelog.tables.iceberg.exchange import UnknownOutcomeError, exchange, note_replaced
from lakelog.tables.iceberg.warehouse import WarehouseFullError
from unit.tables.archive_table import folder, offsets, write_batch

ENTRY = {"lakelog.test": "1"}


@pytest.fixture
def new(address: TableAddress) -> tuple[str, ...]:
    """A file with the offsets 3 and 4, and a table with the offsets 0 to 2."""
    commit_batch(address, write_batch(address, 0, 3))
    return write_batch(address, 3, 5).paths


def made(paths: Iterable[str], table: Table) -> Iterable[DataFile]:
    yield from parquet_files_to_data_files(table.io, table.metadata, iter(paths))


def run(address: TableAddress, new: tuple[str, ...], entry: dict[str, str] | None = ENTRY) -> bool:
    old = list(address.load().scan().plan_files())
    return exchange(address, old, partial(made, new), lambda _: entry)


def test_files_and_properties_change_in_one_commit(
    address: TableAddress, new: tuple[str, ...]
) -> None:
    before = len(address.load().metadata.snapshots)
    assert run(address, new)
    table = address.load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert offsets(table) == [3, 4]
    assert table.properties.items() >= ENTRY.items()
    assert snapshot.summary.additional_properties.items() >= ENTRY.items()
    assert len(table.metadata.snapshots) - before <= 2, "one removes files, one adds them"


def test_a_changed_table_is_left_as_it_is(address: TableAddress, new: tuple[str, ...]) -> None:
    assert not run(address, new, entry=None)
    old = list(address.load().scan().plan_files())
    assert run(address, new)
    assert not exchange(address, old, partial(made, new), lambda _: ENTRY), "the old file is gone"
    assert offsets(address.load()) == [3, 4]


def test_a_commit_without_an_answer_is_found(
    address: TableAddress, new: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, commits = Transaction.commit_transaction, list[int]()

    def unanswered(self: Transaction) -> None:
        commits.append(1)
        real(self)
        raise ConnectionError("no answer")

    monkeypatch.setattr(Transaction, "commit_transaction", unanswered)
    assert run(address, new)
    assert len(commits) == 1
    assert offsets(address.load()) == [3, 4]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (CommitFailedException("another was first"), CommitFailedException),
        (ConnectionError("no answer"), UnknownOutcomeError),
    ],
)
def test_failed_attempts_end_with_the_known_outcome(
    address: TableAddress,
    new: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    expected: type[Exception],
) -> None:
    def fail(self: Transaction) -> None:
        raise raised

    monkeypatch.setattr(commit_lock, "_ATTEMPTS_MAX", 2)
    monkeypatch.setattr(Transaction, "commit_transaction", fail)
    with pytest.raises(expected):
        run(address, new)


FULL = [OSError(errno.ENOSPC, "No space left"), OSError(errno.EDQUOT, "Disk quota exceeded")]


@pytest.mark.parametrize("full", FULL)
def test_a_full_disk_ends_the_exchange_at_once_and_its_outcome_is_known(
    address: TableAddress, new: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, full: OSError
) -> None:
    attempts = failing(monkeypatch, full)
    with pytest.raises(WarehouseFullError, match=r"the disk of the warehouse .* is full"):
        run(address, new)
    assert len(attempts) == 1
    assert offsets(address.load()) == [0, 1, 2]


def test_a_full_disk_after_a_commit_without_an_answer_is_no_outcome(
    address: TableAddress, new: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller would remove files that the first attempt may still commit."""
    monkeypatch.setattr(commit_lock, "_ATTEMPTS_MAX", 3)
    attempts = failing(monkeypatch, ConnectionError("no answer"), *FULL)
    with pytest.raises(UnknownOutcomeError):
        run(address, new)
    assert len(attempts) == 3


def failing(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[int]:
    """Have commits fail with these errors in turn; return a list that gets an item for each."""
    attempts, left = list[int](), iter(errors)

    def fail(self: Transaction) -> None:
        attempts.append(1)
        raise next(left)

    monkeypatch.setattr(Transaction, "commit_transaction", fail)
    return attempts


def test_a_read_only_catalog_is_named(address: TableAddress, new: tuple[str, ...]) -> None:
    path = address.catalog["uri"].removeprefix("sqlite:///")
    read_only = {**address.catalog, "uri": f"sqlite:///file:{path}?mode=ro&uri=true"}
    with pytest.raises(CatalogUnwritableError, match=r"read-only for this process"):
        run(replace(address, catalog=read_only), new)


def test_the_outcome_under_a_lock_of_another_program_is_known(
    address: TableAddress, new: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the new files stay, and the error has no advice."""
    monkeypatch.setattr(commit_lock, "_ATTEMPTS_MAX", 2)
    path = address.catalog["uri"].removeprefix("sqlite:///")
    impatient = {**address.catalog, "uri": f"sqlite:///{path}?timeout=0.05"}
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CatalogLockedError, match=r"has locked the catalog .*catalog\.db"):
            run(replace(address, catalog=impatient), new)
    assert run(address, new)
    assert offsets(address.load()) == [3, 4]


def test_replaced_files_are_listed(address: TableAddress) -> None:
    note_replaced(address.load(), address.catalog, ["a", "b"])
    (listed,) = (folder(address) / "metadata").glob("lakelog-replaced-*.json")
    assert json.loads(listed.read_bytes())["paths"] == ["a", "b"]
