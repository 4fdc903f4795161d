"""Dead letters are added exactly once, whichever commit a crash leaves out."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from pyiceberg.table import Table, Transaction

from lakelog.tables.archive import commit
from lakelog.tables.archive.commit import Batch, CommitOutcome, abandon_batch, commit_batch
from lakelog.tables.archive.dead_letters import (
    DeadLettersError,
    commit_dead_letters,
    dead_letter_ranges,
    dead_letters_of,
    dead_letters_progress,
    find_dead_letters,
    open_dead_letters,
)
from lakelog.tables.archive.history import REFUSED, agreed_progress, skipped_between
from lakelog.tables.archive.progress import Progress, ProgressConflictError
from lakelog.tables.archive.refusals import RefusedCount, Span
from lakelog.tables.iceberg.address import TableAddress, TableReplacedError
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.table import ensure_table
from unit.tables.archive_table import TOPIC_ID, offsets
from unit.tables.dead_letters import dead_letter_files, dead_letters, skipping, with_dead_letters


class CrashError(BaseException):
    """The process ends here."""


def crash_before_the_rows(batch: Batch, address: TableAddress) -> None:
    def die(*_: object) -> None:
        raise CrashError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "append", die)
        with pytest.raises(CrashError):
            commit_batch(address, batch)


def test_dead_letters_rows_and_counts_are_of_one_batch(address: TableAddress) -> None:
    assert (
        commit_batch(address, with_dead_letters(address, 0, 6, (1, 1), (3, 4)))
        is CommitOutcome.APPENDED
    )
    commit_batch(address, with_dead_letters(address, 6, 9, (8, 8), number=1))

    table = address.load()
    assert offsets(table) == [0, 2, 5, 6, 7]
    assert dead_letters(address) == [(1, 1, b"raw 1"), (3, 4, b"raw 3"), (8, 8, b"raw 8")]
    assert agreed_progress(table, TOPIC_ID).refused == {0: RefusedCount(4, 0)}
    named = skipped_between(table, None, table.metadata.current_snapshot_id, REFUSED)
    assert named == [Span(0, 1, 2), Span(0, 3, 5), Span(0, 8, 9)]
    assert dead_letters_progress(dead_letters_of(address).load(), TOPIC_ID).ends == {0: 9}


@pytest.mark.parametrize("ends", [(0, 6), (0, 4), (0, 9)])
def test_a_crash_between_the_commits_adds_no_dead_letter_twice(
    address: TableAddress, ends: tuple[int, int]
) -> None:
    """The repeated batch has the same end, or an earlier one, or a later one."""
    bad = [(1, 1), (3, 4), (7, 7)]

    def batch(start: int, end: int, number: int) -> Batch:
        inside = [(first, min(last, end - 1)) for first, last in bad if start <= first < end]
        return with_dead_letters(address, start, end, *inside, number=number)

    crash_before_the_rows(batch(0, 6, 0), address)
    assert offsets(address.load()) == []

    commit_batch(address, batch(*ends, number=0))
    if ends[1] < 9:
        commit_batch(address, batch(ends[1], 9, 1) if ends[1] == 6 else _rest(address))
    assert [(first, last) for first, last, _ in dead_letters(address)] == bad
    assert offsets(address.load()) == [0, 2, 5, 6, 8]
    assert agreed_progress(address.load(), TOPIC_ID).refused == {0: RefusedCount(4, 0)}
    assert dead_letter_files(address) <= 3, "files without a reference are removed"


def _rest(address: TableAddress) -> Batch:
    """The offsets from 4 on, where 4 is the end of a damaged batch that two tasks have read."""
    return with_dead_letters(address, 4, 9, (4, 4), (7, 7), number=1)


def test_a_damaged_batch_across_the_end_of_a_lost_batch_is_whole(address: TableAddress) -> None:
    crash_before_the_rows(with_dead_letters(address, 0, 4, (3, 3)), address)
    commit_batch(address, with_dead_letters(address, 0, 8, (3, 6)))
    assert [(first, last) for first, last, _ in dead_letters(address)] == [(3, 3), (4, 6)]
    table = dead_letters_of(address).load()
    assert dead_letter_ranges(table, "orders", 0) == [(3, 4), (4, 7)]
    assert dead_letter_ranges(table, "orders", 1) == []


def test_dead_letters_whose_commit_landed_but_raised_are_not_repeated(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Transaction.commit_transaction

    def land_then_fail(self: Transaction) -> Table:
        real(self)
        raise ConnectionError("the answer was lost")

    monkeypatch.setattr(Transaction, "commit_transaction", land_then_fail)
    assert (
        commit_batch(address, with_dead_letters(address, 0, 3, (1, 1)))
        is CommitOutcome.ALREADY_THERE
    )
    assert offsets(address.load()) == [0, 2]
    assert dead_letters(address) == [(1, 1, b"raw 1")]


@pytest.mark.long
def test_racing_jobs_add_each_dead_letter_once(address: TableAddress) -> None:
    end, bad = 12, {2, 3, 7, 11}
    open_dead_letters(address, TOPIC_ID)

    def race(step: int) -> None:
        while True:
            at = agreed_progress(address.load(), TOPIC_ID).ends.get(0, 0)
            if at >= end:
                return
            stop = min(at + step, end)
            inside = [(each, each) for each in sorted(bad) if at <= each < stop]
            try:
                batch = with_dead_letters(address, at, stop, *inside or [(at, at)])
                commit_batch(address, batch if inside else _without_dead_letters(address, at, stop))
            except ProgressConflictError:
                continue

    racers = [threading.Thread(target=race, args=[step]) for step in (2, 3, 5)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [first for first, _, _ in dead_letters(address)] == sorted(bad)
    assert offsets(address.load()) == sorted(set(range(end)) - bad)


def _without_dead_letters(address: TableAddress, start: int, end: int) -> Batch:
    from unit.tables.archive_table import write_batch

    return write_batch(address, start, end)


def test_skipped_records_are_counted_only(address: TableAddress) -> None:
    commit_batch(address, skipping(with_dead_letters(address, 0, 4, (1, 2))))
    table = address.load()
    assert agreed_progress(table, TOPIC_ID).refused == {0: RefusedCount(0, 2)}
    assert dead_letters(address) == []
    named = skipped_between(table, None, table.metadata.current_snapshot_id, REFUSED)
    assert named == [Span(0, 1, 3)]


def test_a_batch_that_conflicts_leaves_no_dead_letters(address: TableAddress) -> None:
    commit_batch(address, with_dead_letters(address, 0, 5, (1, 1)))
    with pytest.raises(ProgressConflictError):
        commit_batch(address, with_dead_letters(address, 3, 8, (6, 6)))
    assert [first for first, _, _ in dead_letters(address)] == [1]
    assert dead_letter_files(address) == 1


def test_dead_letters_of_an_abandoned_batch_are_removed(address: TableAddress) -> None:
    batch = with_dead_letters(address, 0, 5, (1, 1))
    assert batch.dead_letters is not None
    abandon_batch(batch.dead_letters.address, batch.dead_letters.paths)
    assert dead_letter_files(address) == 0


def test_a_table_of_another_topic_is_refused(address: TableAddress) -> None:
    assert find_dead_letters(address) is None
    commit_batch(address, with_dead_letters(address, 0, 5, (1, 1)))
    assert find_dead_letters(address) is not None
    with pytest.raises(DeadLettersError, match="orders_dead_letters has dead letters of another"):
        open_dead_letters(address, "B" * 22)


def test_a_rolled_back_table_of_dead_letters_stops_the_batch(address: TableAddress) -> None:
    commit_batch(address, with_dead_letters(address, 0, 3, (1, 1)))
    first = dead_letters_of(address).load().metadata.current_snapshot_id
    assert first is not None
    commit_batch(address, with_dead_letters(address, 3, 6, (4, 4), number=1))
    dead_letters_of(address).load().manage_snapshots().rollback_to_snapshot(first).commit()

    batch = with_dead_letters(address, 6, 9, (7, 7), number=2)
    with pytest.raises(DeadLettersError, match="orders_dead_letters was rolled back"):
        commit_batch(address, batch)
    assert offsets(address.load()) == [0, 2, 3, 5]


def test_a_table_of_dead_letters_that_was_created_again_stops_the_batch(
    address: TableAddress,
) -> None:
    batch = with_dead_letters(address, 0, 3, (1, 1))
    open_catalog(address.catalog).drop_table(dead_letters_of(address).identifier)
    open_dead_letters(address, TOPIC_ID)
    with pytest.raises(TableReplacedError, match="dropped and created again"):
        commit_batch(address, batch)
    assert agreed_progress(address.load(), TOPIC_ID) == Progress()


def test_dead_letters_alone_may_be_committed_again(address: TableAddress) -> None:
    batch = with_dead_letters(address, 0, 5, (1, 1))
    assert batch.dead_letters is not None
    for _ in range(2):
        commit_dead_letters(batch.dead_letters, TOPIC_ID, "q", 0, batch.extents)
    others = with_dead_letters(address, 0, 9, (1, 1)).dead_letters
    assert others is not None
    later = replace(batch.dead_letters, paths=others.paths)
    commit_dead_letters(later, TOPIC_ID, "q", 0, {0: batch.extents[0]._replace(end=9)})
    assert dead_letters(address) == [(1, 1, b"raw 1")]


def test_the_archive_of_another_topic_has_no_dead_letters(address: TableAddress) -> None:
    """A topic may have the name of a table of dead letters."""
    ensure_table(dead_letters_of(address))
    assert find_dead_letters(address) is None
