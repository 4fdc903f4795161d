"""The commit protocol against a real table in a SQLite catalog."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, Transaction

from lakelog.spark.archive import commit, expiry
from lakelog.spark.archive.address import TableAddress
from lakelog.spark.archive.columns import ARROW_SCHEMA
from lakelog.spark.archive.commit import Batch, Outcome, abandon_batch, commit_batch
from lakelog.spark.archive.progress import ProgressConflictError, read_progress
from lakelog.spark.archive.table import SCHEMA, ensure_table
from lakelog.spark.archive.warehouse import open_warehouse

TOPIC_ID = "A" * 22


@pytest.fixture
def address(tmp_path: Path) -> TableAddress:
    address = TableAddress(open_warehouse(str(tmp_path)).catalog, ("lakelog", "orders"))
    ensure_table(address)
    return address


def write_batch(address: TableAddress, start: int, end: int, number: int = 0) -> Batch:
    """A file with the offsets [start, end) of partition 0, and the batch that has it."""
    path = f"{address.load().location()}/data/{uuid.uuid4()}.parquet"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(exist_ok=True)
    rows = [
        {
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": datetime.fromtimestamp(offset, UTC),
            "timestampType": 0,
            "value": b"v",
            "headers": [{"key": "h", "value": b"x"}],
        }
        for offset in range(start, end)
    ]
    pq.write_table(pa.Table.from_pylist(rows, ARROW_SCHEMA), local)
    return Batch(TOPIC_ID, "query", number, {0: (start, end)}, (path,))


def offsets(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["offset"].to_pylist())


def files(address: TableAddress) -> int:
    return len(list(Path(address.load().location().removeprefix("file://")).glob("data/*")))


def test_files_and_progress_change_together(address: TableAddress) -> None:
    assert commit_batch(address, write_batch(address, 0, 5)) is Outcome.APPENDED
    assert commit_batch(address, write_batch(address, 5, 8, 1)) is Outcome.APPENDED

    table = address.load()
    assert offsets(table) == list(range(8))
    assert read_progress(table.properties, TOPIC_ID).ends == {0: 8}


def test_a_repeated_batch_is_dropped_with_its_files(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))

    assert commit_batch(address, write_batch(address, 0, 5)) is Outcome.ALREADY_THERE

    assert offsets(address.load()) == list(range(5))
    assert files(address) == 1


def test_a_batch_that_overlaps_fails_and_changes_nothing(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))

    with pytest.raises(ProgressConflictError):
        commit_batch(address, write_batch(address, 3, 8))

    assert offsets(address.load()) == list(range(5))


def test_a_batch_without_files_moves_the_progress_and_is_fenced(address: TableAddress) -> None:
    """Only control records in its ranges. Without a snapshot, two such commits could cross."""
    stale = address.load()
    batch = Batch(TOPIC_ID, "query", 0, {0: (0, 4)}, ())

    assert commit_batch(address, batch) is Outcome.APPENDED

    assert read_progress(address.load().properties, TOPIC_ID).ends == {0: 4}
    with pytest.raises(CommitFailedException):
        commit.append(stale, batch)


def test_a_commit_that_landed_but_raised_is_not_repeated(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Transaction.commit_transaction

    def land_then_fail(self: Transaction) -> Table:
        real(self)
        raise ConnectionError("the answer was lost")

    monkeypatch.setattr(Transaction, "commit_transaction", land_then_fail)
    outcome = commit_batch(address, write_batch(address, 0, 5))

    assert outcome is Outcome.ALREADY_THERE
    assert offsets(address.load()) == list(range(5))


def test_a_commit_that_landed_is_found_even_when_others_followed(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress then speaks of the others; only the table's files tell whose ours are."""
    ours, theirs = write_batch(address, 0, 5), write_batch(address, 5, 9, 1)
    real = commit.append

    def land_then_fail(table: Table, batch: Batch) -> None:
        real(table, batch)
        monkeypatch.setattr(commit, "append", real)
        commit_batch(address, theirs)
        raise ConnectionError("the answer was lost")

    monkeypatch.setattr(commit, "append", land_then_fail)

    assert commit_batch(address, ours) is Outcome.ALREADY_THERE
    assert offsets(address.load()) == list(range(9))


def test_abandoning_removes_files_only_if_the_table_does_not_name_them(
    address: TableAddress,
) -> None:
    committed, lost = write_batch(address, 0, 5), write_batch(address, 5, 9)
    commit_batch(address, committed)

    abandon_batch(address, [*committed.paths, *lost.paths])

    assert files(address) == 1
    assert offsets(address.load()) == list(range(5))


def test_racers_and_expiry_together_are_exact(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "SNAPSHOTS_MAX", 4)
    monkeypatch.setattr(expiry, "_KEPT", 2)
    end, outcomes = 16, Counter[str]()

    def race(step: int) -> None:
        while True:
            at = read_progress(address.load().properties, TOPIC_ID).ends.get(0, 0)
            if at >= end:
                return
            try:
                batch = write_batch(address, at, min(at + step, end))
                outcomes[commit_batch(address, batch).name] += 1
            except ProgressConflictError:
                outcomes["CONFLICT"] += 1

    racers = [threading.Thread(target=race, args=[step]) for step in (1, 2, 3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()

    assert offsets(address.load()) == list(range(end))
    assert len(outcomes) > 1, "nobody ever lost, so nothing was tested"


def test_history_stays_short(address: TableAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "SNAPSHOTS_MAX", 4)
    monkeypatch.setattr(expiry, "_KEPT", 2)
    for at in range(10):
        commit_batch(address, write_batch(address, at, at + 1, at))

    table = address.load()
    assert len(table.metadata.snapshots) <= 4
    metadata = Path(table.location().removeprefix("file://")) / "metadata"
    assert len(list(metadata.glob("snap-*.avro"))) == len(table.metadata.snapshots)
    assert offsets(table) == list(range(10))


def test_the_table_is_created_once_by_many(tmp_path: Path) -> None:
    address = TableAddress(open_warehouse(str(tmp_path)).catalog, ("lakelog", "a.b"))
    found: list[str] = []
    workers = [
        threading.Thread(
            target=lambda: found.append(str(ensure_table(address).metadata.table_uuid))
        )
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert len(found) == 3
    assert len(set(found)) == 1


def test_the_columns_are_said_twice_alike() -> None:
    assert schema_to_pyarrow(SCHEMA).equals(ARROW_SCHEMA, check_metadata=True)
