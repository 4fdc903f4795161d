from __future__ import annotations

import errno
import fcntl
import threading
import time

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, Transaction

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg import turns
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.turns import attempts, turn
from lakelog.tables.upkeep.compaction import compact
from unit.tables.archive_table import TOPIC_ID, offsets, write_batch


def test_a_second_writer_waits_and_loads_the_table_of_the_first(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, loaded = threading.Event(), list[Table]()
    monkeypatch.setattr(time, "sleep", lambda _: waits.set())

    def second() -> None:
        with turn(address) as table:
            loaded.append(table)

    with turn(address) as table:
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(30)
        assert not loaded
        with table.transaction() as transaction:
            transaction.set_properties({"turn": "first"})
    thread.join()
    assert loaded[0].properties["turn"] == "first"


def test_a_compaction_beside_an_archive_without_pause_needs_one_attempt(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(8):
        commit_batch(address, write_batch(address, at, at + 1, at))
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
            at = archived[0]
            commit_batch(address, write_batch(address, at, at + 1, at))
            archived[0] += 1
            arrived.release()

    def compact_new() -> int:
        end = archived[0] + 2
        while archived[0] < end:
            assert arrived.acquire(timeout=60)
        return compact(address, "orders", TOPIC_ID, files_min=2).files_after

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


@pytest.mark.parametrize("waited_s", [0.0, 0.05])
def test_a_writer_that_is_stopped_in_its_turn_does_not_stop_others(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch, waited_s: float
) -> None:
    monkeypatch.setattr(turns, "_WAIT_MAX_S", waited_s)
    with turn(address):
        commit_batch(address, write_batch(address, 0, 3))
    assert offsets(address.load()) == [0, 1, 2]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EBADF])
def test_without_locks_of_folders_writers_commit(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(fd: int, kind: int) -> None:
        raise OSError(number, "no lock")

    monkeypatch.setattr(fcntl, "flock", refuse)
    commit_batch(address, write_batch(address, 0, 3))
    assert offsets(address.load()) == [0, 1, 2]


def test_a_turn_opens_no_folder_of_another_store(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Table, "location", lambda _: "s3://tables/lakelog/orders")
    monkeypatch.setattr(turns, "_open_locked", pytest.fail)
    with turn(address) as table:
        assert table.name() == ("lakelog", "orders")


def test_an_operation_pauses_between_its_attempts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s = list[float]()
    monkeypatch.setattr(time, "sleep", pauses_s.append)
    assert len(list(attempts())) == 16
    assert pauses_s[:3] == [0.05, 0.1, 0.2]
    assert len(pauses_s) == 15
