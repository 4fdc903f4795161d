"""The commit protocol against a real table in a SQLite catalog.

The state of a table that a job reports.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction

from lakelog.tables.archive import commit
from lakelog.tables.archive.commit import Batch, CommitOutcome, SyncProgress, commit_batch, state_of
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.progress import (
    ArchiveJob,
    Extent,
    ForeignTableError,
    Progress,
    ProgressConflictError,
    property_name,
    read_progress,
)
from lakelog.tables.iceberg import commits as commit_module
from lakelog.tables.iceberg.address import TableAddress, TableReplacedError
from lakelog.tables.iceberg.catalog import CatalogUnwritableError, open_catalog
from lakelog.tables.iceberg.table import SCHEMA, ensure_table
from lakelog.tables.iceberg.warehouse import WarehouseFullError, open_warehouse
from small_disk import SmallDisk
from unit.tables.archive_table import TOPIC_ID, files, new_table, offsets, write_batch


def test_files_and_progress_change_together(address: TableAddress) -> None:
    assert commit_batch(address, write_batch(address, 0, 5)) is CommitOutcome.APPENDED
    assert commit_batch(address, write_batch(address, 5, 8, 1)) is CommitOutcome.APPENDED

    table = address.load()
    assert offsets(table) == list(range(8))
    assert read_progress(table.properties, TOPIC_ID).ends == {0: 8}


def test_a_repeated_batch_is_dropped_with_its_files(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))

    assert commit_batch(address, write_batch(address, 0, 5)) is CommitOutcome.ALREADY_THERE

    assert offsets(address.load()) == list(range(5))
    assert files(address) == 1


def test_a_batch_that_overlaps_fails_and_changes_nothing(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))

    with pytest.raises(ProgressConflictError):
        commit_batch(address, write_batch(address, 3, 8))

    assert offsets(address.load()) == list(range(5))


@pytest.mark.parametrize("first", ["other", TOPIC_ID])
def test_of_two_topics_the_first_commit_has_the_table(address: TableAddress, first: str) -> None:
    """Both jobs may have opened the table while it was empty."""
    batches = {
        name: replace(write_batch(address, 0, 5), topic_id=name) for name in (TOPIC_ID, "other")
    }
    assert commit_batch(address, batches.pop(first)) is CommitOutcome.APPENDED
    (second,) = batches.values()
    with pytest.raises(ForeignTableError, match=f"topic id {first}, not {second.topic_id}"):
        commit_batch(address, second)
    assert offsets(address.load()) == list(range(5))
    assert files(address) == 1, "the refused batch leaves no file"


def test_a_batch_without_files_moves_the_progress_and_is_fenced(address: TableAddress) -> None:
    """Only control records in its ranges. Without a snapshot, two such commits could cross."""
    stale = address.load()
    batch = Batch(TOPIC_ID, "query", 0, {0: Extent(0, 4)}, ())

    assert commit_batch(address, batch) is CommitOutcome.APPENDED

    assert read_progress(address.load().properties, TOPIC_ID).ends == {0: 4}
    with pytest.raises(CommitFailedException):
        commit.append(stale, batch, Progress())


def test_a_commit_that_landed_but_raised_is_not_repeated(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Transaction.commit_transaction

    def land_then_fail(self: Transaction) -> Table:
        real(self)
        raise ConnectionError("the answer was lost")

    monkeypatch.setattr(Transaction, "commit_transaction", land_then_fail)
    outcome = commit_batch(address, write_batch(address, 0, 5))

    assert outcome is CommitOutcome.ALREADY_THERE
    assert offsets(address.load()) == list(range(5))


@pytest.mark.usefixtures("on_two_hosts")
def test_a_commit_that_landed_is_found_even_when_others_followed(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress then covers both batches; only the table's files show that this one is in it."""
    ours, theirs = write_batch(address, 0, 5), write_batch(address, 5, 9, 1)
    real = commit.append

    def land_then_fail(table: Table, batch: Batch, before: Progress) -> None:
        real(table, batch, before)
        monkeypatch.setattr(commit, "append", real)
        commit_batch(address, theirs)
        raise ConnectionError("the answer was lost")

    monkeypatch.setattr(commit, "append", land_then_fail)

    assert commit_batch(address, ours) is CommitOutcome.ALREADY_THERE
    assert offsets(address.load()) == list(range(9))


@pytest.mark.long
def test_racers_and_expiry_together_are_exact(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "SNAPSHOTS_MAX", 4)
    monkeypatch.setattr(commit_module, "_KEPT", 2)
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
    assert len(outcomes) > 1, "no commit ever conflicted, so nothing was tested"


@pytest.fixture
def foreign(tmp_path: Path) -> TableAddress:
    """Of a table that another program created, with PyIceberg's defaults."""
    address = TableAddress(open_warehouse(str(tmp_path)).catalog, ("lakelog", "foreign"))
    catalog = open_catalog(address.catalog)
    catalog.create_namespace("lakelog")
    catalog.create_table(address.identifier, SCHEMA)
    ensure_table(address)
    return address


def race_for(address: TableAddress, monkeypatch: pytest.MonkeyPatch) -> CommitOutcome:
    """Another job commits the same offsets between the look at the table and the commit."""
    ours, theirs = write_batch(address, 0, 5), write_batch(address, 0, 5)
    real = Transaction.commit_transaction

    def after_theirs(self: Transaction) -> Table:
        if self._snapshot_producers:
            monkeypatch.setattr(Transaction, "commit_transaction", real)
            assert commit_batch(address, theirs) is CommitOutcome.APPENDED
        return real(self)

    monkeypatch.setattr(Transaction, "commit_transaction", after_theirs)
    return commit_batch(address, ours)


@pytest.mark.usefixtures("on_two_hosts")
def test_a_table_of_another_program_is_not_rebased_in_silence(
    foreign: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert race_for(foreign, monkeypatch) is CommitOutcome.ALREADY_THERE
    assert offsets(foreign.load()) == list(range(5))


@pytest.mark.usefixtures("on_two_hosts")
def test_a_table_that_lost_its_properties_is_not_rebased_in_silence(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    with address.load().transaction() as transaction:
        transaction.remove_properties("commit.retry.num-retries", "commit.manifest-merge.enabled")

    assert race_for(address, monkeypatch) is CommitOutcome.ALREADY_THERE
    assert offsets(address.load()) == list(range(5))
    assert address.load().properties["commit.manifest-merge.enabled"] == "true"


def test_a_property_that_always_goes_again_stops_the_commit(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Transaction, "set_properties", lambda *_: None)
    with address.load().transaction() as transaction:
        transaction.remove_properties("commit.retry.num-retries")

    with pytest.raises(CommitFailedException, match="keeps removing properties"):
        commit_batch(address, write_batch(address, 0, 5))


def test_a_table_that_was_created_again_is_not_written_from_the_middle(
    address: TableAddress,
) -> None:
    commit_batch(address, write_batch(address, 0, 5))
    batch = write_batch(address, 5, 8)
    open_catalog(address.catalog).drop_table(address.identifier)
    with pytest.raises(TableReplacedError, match="was dropped while"):
        commit_batch(address, batch)
    ensure_table(address)

    with pytest.raises(TableReplacedError, match="dropped and created again"):
        commit_batch(address, batch)

    assert offsets(replace(address, uuid="").load()) == []


def test_a_read_only_catalog_is_named_and_the_batch_leaves_no_file(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))
    path = address.catalog["uri"].removeprefix("sqlite:///")
    read_only = {**address.catalog, "uri": f"sqlite:///file:{path}?mode=ro&uri=true"}
    batch = write_batch(address, 5, 8, 1)
    with pytest.raises(
        CatalogUnwritableError, match=r"catalog\.db.* is read-only for this process"
    ):
        commit_batch(replace(address, catalog=read_only), batch)
    assert offsets(address.load()) == list(range(5))
    assert files(address) == 1


def test_a_full_disk_is_named_and_the_archive_continues_when_there_is_space(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 4 << 20) as disk:
        address = new_table(disk.seen_folder)
        commit_batch(address, write_batch(address, 0, 5))
        batch = write_batch(address, 5, 8, 1)
        disk.fill()
        with pytest.raises(WarehouseFullError, match=r"the disk of the .* is full"):
            commit_batch(address, batch)
        assert offsets(address.load()) == list(range(5))
        (disk.seen_folder / "filler").unlink()
        assert commit_batch(address, write_batch(address, 5, 8, 1)) is CommitOutcome.APPENDED
        assert offsets(address.load()) == list(range(8))


@pytest.fixture
def job(address: TableAddress) -> ArchiveJob:
    return ArchiveJob(
        bootstrap="b:1",
        topic="orders",
        topic_id=TOPIC_ID,
        catalog=dict(address.catalog),
        identifier=address.identifier,
        location="",
        batch_bytes=1000,
        tasks=2,
        skip_lost=False,
        raw_timestamp_id=0,
        uuid=address.uuid,
        extents={},
    )


def test_a_new_table_has_no_rows_no_ends_and_no_snapshot(job: ArchiveJob) -> None:
    assert state_of(job) == SyncProgress(0, {}, None)


def test_a_commit_changes_rows_ends_and_snapshot(job: ArchiveJob) -> None:
    commit_batch(job.address, write_batch(job.address, 0, 5))
    commit_batch(job.address, write_batch(job.address, 5, 7, 1))
    snapshot = job.address.load().current_snapshot()
    assert snapshot is not None
    assert state_of(job) == SyncProgress(7, {0: 7}, snapshot.snapshot_id)


def test_a_job_does_not_report_the_ends_of_another_topic(job: ArchiveJob) -> None:
    commit_batch(job.address, write_batch(job.address, 0, 5))
    assert state_of(replace(job, topic_id="another")).ends == {}


def test_a_dropped_table_is_an_error_of_the_job(job: ArchiveJob) -> None:
    open_catalog(job.catalog).drop_table(job.identifier)
    with pytest.raises(SyncError, match=r"lakelog.orders was dropped while the job was running"):
        state_of(job)


def test_progress_that_cannot_be_read_is_an_error_of_the_job(job: ArchiveJob) -> None:
    with job.address.load().transaction() as transaction:
        transaction.set_properties({property_name(TOPIC_ID): "{"})
    with pytest.raises(SyncError, match=r"progress cannot be read .*Restore the property"):
        state_of(job)
