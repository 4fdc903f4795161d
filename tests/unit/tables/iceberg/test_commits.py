from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.maintenance import MaintenanceTable

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg import commits as commit_module
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import CatalogLockedError, CatalogUnwritableError
from lakelog.tables.iceberg.commits import (
    Policy,
    UnknownOutcomeError,
    attempts,
    exchange,
    expire_by,
    locked_for_commit,
    note_replaced,
)
from lakelog.tables.iceberg.table import load_for_commit
from lakelog.tables.iceberg.warehouse import WarehouseFullError
from lakelog.tables.upkeep.compaction import compact
from unit.tables.archive_table import TOPIC_ID, folder, offsets, write_batch

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

    monkeypatch.setattr(commit_module, "_ATTEMPTS_MAX", 2)
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
    monkeypatch.setattr(commit_module, "_ATTEMPTS_MAX", 3)
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
    monkeypatch.setattr(commit_module, "_ATTEMPTS_MAX", 2)
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


def append(address: TableAddress, at: int) -> None:
    commit_batch(address, write_batch(address, at, at + 1, at))


def compact_all(address: TableAddress) -> int:
    return compact(address, "orders", TOPIC_ID, files_min=2).files_after


def expire_all(address: TableAddress) -> int:
    return expire_by(address, Policy(1), int(time.time() * 1000))


def is_locked(table: Table) -> bool:
    fd = os.open(urlsplit(table.location()).path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@pytest.mark.parametrize("write", [lambda address: append(address, 2), compact_all, expire_all])
def test_a_writer_has_its_turn_from_the_load_to_the_commit(
    address: TableAddress,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[TableAddress], object],
) -> None:
    for at in range(2):
        append(address, at)
    commit = Transaction.commit_transaction
    seen = list[tuple[str, bool]]()

    def seen_load(address: TableAddress) -> Table:
        table = load_for_commit(address)
        seen.append(("load", is_locked(table)))
        return table

    def seen_commit(self: Transaction) -> Table:
        seen.append(("commit", is_locked(self._table)))
        return commit(self)

    monkeypatch.setattr(commit_module, "load_for_commit", seen_load)
    monkeypatch.setattr(Transaction, "commit_transaction", seen_commit)
    write(address)
    assert seen == [("load", True), ("commit", True)]
    assert not is_locked(address.load())


def test_a_second_writer_waits_and_loads_the_table_of_the_first(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, loaded = threading.Event(), list[Table]()
    monkeypatch.setattr(time, "sleep", lambda _: waits.set())

    def second() -> None:
        with locked_for_commit(address) as table:
            loaded.append(table)

    with locked_for_commit(address) as table:
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(30)
        assert not loaded
        with table.transaction() as transaction:
            transaction.set_properties({"turn": "first"})
    thread.join()
    assert loaded[0].properties["turn"] == "first"


_HOLD = """
import sys
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.table import load_for_commit
from lakelog.tables.iceberg.commits import locked_for_commit
catalog, name, uuid = eval(sys.argv[1])
with locked_for_commit(TableAddress(catalog, name, uuid)):
    print("has its turn", flush=True)
    sys.stdin.read()
"""


@pytest.mark.long
def test_the_turn_of_a_killed_process_ends_with_it(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commit_module, "_WAIT_MAX_S", 600.0)
    parts = repr((dict(address.catalog), address.identifier, address.uuid))
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, parts], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"has its turn\n"
        waits = list[float]()

        def sleep(pause_s: float) -> None:
            waits.append(pause_s)
            process.kill()
            process.wait()

        monkeypatch.setattr(time, "sleep", sleep)
        append(address, 0)
    assert len(waits) == 1
    assert offsets(address.load()) == [0]


@pytest.mark.long
def test_a_compaction_beside_an_archive_without_pause_needs_one_attempt(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(8):
        append(address, at)
    refused, real = list[CommitFailedException](), Transaction.commit_transaction

    def commit(self: Transaction) -> Table:
        try:
            return real(self)
        except CommitFailedException as error:
            refused.append(error)
            raise

    monkeypatch.setattr(Transaction, "commit_transaction", commit)
    is_done, arrived, archived = threading.Event(), threading.Semaphore(0), [8]

    def archive() -> None:
        while not is_done.is_set():
            append(address, archived[0])
            archived[0] += 1
            arrived.release()

    def compact_new() -> int:
        end = archived[0] + 2
        while archived[0] < end:
            assert arrived.acquire(timeout=60)
        return compact_all(address)

    thread = threading.Thread(target=archive)
    thread.start()
    try:
        made = [compact_new() for _ in range(3)]
    finally:
        is_done.set()
        thread.join()
    assert made == [1, 1, 1]
    assert offsets(address.load()) == list(range(archived[0]))
    assert refused == []


def test_writers_wait_once_for_a_writer_that_is_stopped_in_its_turn(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "lakelog.tables")
    pauses_s = list[float]()
    monkeypatch.setattr(time, "sleep", pauses_s.append)
    monkeypatch.setattr(commit_module, "_WAIT_MAX_S", 0.05)
    with locked_for_commit(address):
        append(address, 0)
        waited = len(pauses_s)
        append(address, 1)
        append(address, 2)
    assert waited > 0
    assert len(pauses_s) == waited
    assert [each.__dict__["event"] for each in caplog.records] == ["table_lock_ignored"]
    append(address, 3)
    assert offsets(address.load()) == [0, 1, 2, 3]
    with locked_for_commit(address):
        append(address, 4)
    assert len(pauses_s) > waited, "the lock was free in between"


def test_a_turn_ends_although_a_process_was_forked_in_it(address: TableAddress) -> None:
    reader, writer = os.pipe()
    with locked_for_commit(address) as table:
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
    os.close(reader)
    try:
        assert not is_locked(table)
    finally:
        os.close(writer)
        os.waitpid(child, 0)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EBADF])
def test_without_locks_of_folders_writers_commit(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(fd: int, kind: int) -> None:
        raise OSError(number, "no lock")

    monkeypatch.setattr(fcntl, "flock", refuse)
    append(address, 0)
    assert offsets(address.load()) == [0]


def test_a_turn_opens_no_folder_of_another_store(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Table, "location", lambda _: "s3://tables/lakelog/orders")
    monkeypatch.setattr(commit_module, "_locked", pytest.fail)
    with locked_for_commit(address) as table:
        assert table.name() == ("lakelog", "orders")


def test_the_lock_is_released_after_an_error(address: TableAddress) -> None:
    with suppress(KeyError), locked_for_commit(address):
        raise KeyError
    assert not is_locked(address.load())


def test_an_operation_pauses_between_its_attempts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s = list[float]()
    monkeypatch.setattr(time, "sleep", pauses_s.append)
    assert len(list(attempts())) == 16
    assert pauses_s[:3] == [0.05, 0.1, 0.2]
    assert len(pauses_s) == 15


@pytest.fixture(autouse=True)
def _short_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "SNAPSHOTS_MAX", 4)
    monkeypatch.setattr(commit_module, "_KEPT", 2)


def commit_each(address: TableAddress, start: int, end: int) -> None:
    """A batch, a snapshot and a file for each offset."""
    for at in range(start, end):
        commit_batch(address, write_batch(address, at, at + 1, at))


def test_history_stays_short(address: TableAddress) -> None:
    commit_each(address, 0, 10)

    table = address.load()
    assert len(table.metadata.snapshots) <= 4
    lists = list((folder(address) / "metadata").glob("snap-*.avro"))
    assert len(lists) == len(table.metadata.snapshots)
    assert offsets(table) == list(range(10))


@pytest.mark.long
def test_tagged_and_branched_snapshots_stay_and_the_rest_expires(address: TableAddress) -> None:
    tagged: list[int] = []
    for at, name in ((0, "tag"), (1, "branch")):
        commit_each(address, at, at + 1)
        table = address.load()
        tagged.append(int(table.metadata.current_snapshot_id or 0))
        manage = table.manage_snapshots()
        create = manage.create_tag if name == "tag" else manage.create_branch
        create(tagged[-1], name).commit()

    commit_each(address, 2, 12)

    table = address.load()
    assert len(table.metadata.snapshots) <= 6
    assert [offsets(table, each) for each in tagged] == [[0], [0, 1]]
    lists = list((folder(address) / "metadata").glob("snap-*.avro"))
    assert len(lists) == len(table.metadata.snapshots)
    assert offsets(table) == list(range(12))


def test_after_an_expiry_of_unknown_outcome_no_file_goes(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_each(address, 0, 4)
    metadata = folder(address) / "metadata"
    before = set(metadata.glob("*.avro"))

    def unknown(self: MaintenanceTable) -> None:
        raise ConnectionError("no answer")

    monkeypatch.setattr(MaintenanceTable, "expire_snapshots", unknown)
    commit_each(address, 4, 6)

    assert set(metadata.glob("*.avro")) >= before
    assert offsets(address.load()) == list(range(6))


def test_a_kept_snapshot_that_cannot_be_read_stops_the_removal_not_the_batch(
    address: TableAddress,
) -> None:
    commit_each(address, 0, 2)
    table = address.load()
    kept = table.metadata.snapshots[0]
    table.manage_snapshots().create_tag(kept.snapshot_id, "kept").commit()
    table.io.delete(kept.manifest_list)

    commit_each(address, 2, 8)

    assert offsets(address.load()) == list(range(8))
