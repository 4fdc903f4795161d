from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Transaction

from lakelog.tables.archive.commit import Batch, commit_batch
from lakelog.tables.archive.history import record
from lakelog.tables.archive.progress import Extent
from lakelog.tables.compacted import backlog as backlogs
from lakelog.tables.compacted.refresh import Refresh
from lakelog.tables.compacted.table import CompactedTableError, agreed
from lakelog.tables.iceberg import commits as commit_module
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.commits import UnknownOutcomeError
from lakelog.tables.iceberg.stored_files import referenced_files
from lakelog.tables.iceberg.table import load_for_commit
from lakelog.tables.upkeep.compaction import compact
from unit.tables.archive_table import TOPIC_ID
from unit.tables.compacted.kit import Put, Tables


@pytest.fixture
def tables(address: TableAddress) -> Tables:
    return Tables(address)


def cut(tables: Tables, end: int) -> None:
    """Remove the rows of partition 0 from `end` on, as after a loss of records."""
    progress = tables.version().progress
    back = replace(progress, extents={0: Extent(0, end, 0)}, rewinds=progress.rewinds + 1)
    with load_for_commit(tables.archive).transaction() as transaction:
        transaction.delete(f"offset >= {end}")
        record(transaction, TOPIC_ID, back)
    del tables.puts[0][end:]


def data_files(tables: Tables) -> set[str]:
    location = tables.place.address.load().location().removeprefix("file://")
    return {path.as_uri() for path in (Path(location) / "data").glob("*")}


def test_each_key_has_its_newest_record(tables: Tables) -> None:
    tables.append(*(Put(b"k%d" % (n % 7), b"v%d" % n, at=100 - n) for n in range(50)))
    tables.append(Put(b"k1", None), Put(None, b"without a key"))
    done = tables.refresh()
    assert (done.rows, done.commits, done.ends) == (52, 1, {0: 52})
    assert tables.values() == tables.expected()
    assert len(tables.values()) == 6
    newest = next(each for each in tables.rows("offset", "headers") if each["key"] == b"k0")
    assert newest["offset"] == 49
    assert newest["headers"] == [{"key": "h", "value": b"49"}]
    progress = agreed(tables.place.address.load(), TOPIC_ID)
    assert (progress.ends, progress.null_keys) == ({0: 52}, {0: 1})


def test_a_missing_data_file_is_named_and_a_rebuild_replaces_it(tables: Tables) -> None:
    tables.append(Put(b"a", b"1"))
    tables.refresh()
    (path,) = tables.files().values()
    Path(path.removeprefix("file://")).unlink()
    tables.append(Put(b"a", b"2"))
    with pytest.raises(CompactedTableError, match=r"a data file .* is missing .* --rebuild"):
        tables.refresh()
    tables.refresh(rebuild=True)
    assert tables.values() == {b"a": b"2"}


@pytest.mark.long
def test_random_records_over_many_refreshes_are_as_in_a_dictionary(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlogs, "_CHUNK_BYTES", 700)
    rng = random.Random(11)
    for number in range(12):
        for _ in range(rng.randrange(1, 3)):
            puts = []
            for _ in range(rng.randrange(1, 60)):
                key = rng.randrange(40)
                value = None if rng.random() < 0.3 else rng.randbytes(rng.randrange(30))
                name = None if rng.random() < 0.05 else b"k%d" % key
                puts.append(Put(name, value, key % 3, rng.randrange(1000)))
            tables.append(*puts)
        if number % 4 == 2:
            compact(tables.archive, "orders", TOPIC_ID, files_min=2)
        tables.refresh(bucket_bytes=rng.choice([1, 1 << 20]))
        assert tables.values() == tables.expected()
    nulls = sum(put.key is None for puts in tables.puts.values() for put in puts)
    assert sum(agreed(tables.place.address.load(), TOPIC_ID).null_keys.values()) == nulls


def test_a_refresh_replaces_the_files_of_changed_keys_only(tables: Tables) -> None:
    tables.append(*(Put(b"k%d" % number, b"v") for number in range(40)))
    tables.refresh()
    before = tables.files()
    tables.append(Put(b"k5", b"new"), Put(b"unknown", None))
    done = tables.refresh()
    after = tables.files()
    assert sum(before[bucket] != after[bucket] for bucket in before) == done.buckets == 1
    assert tables.values() == tables.expected()


def test_without_new_records_nothing_is_committed(tables: Tables) -> None:
    tables.append(Put(b"k", b"v"))
    tables.refresh()
    snapshot = tables.place.address.load().metadata.current_snapshot_id
    assert tables.refresh().commits == 0
    assert tables.place.address.load().metadata.current_snapshot_id == snapshot


def test_all_rows_may_leave(tables: Tables) -> None:
    tables.append(Put(b"a", b"1"), Put(b"b", b"2"))
    tables.refresh()
    tables.append(Put(b"a", None), Put(b"b", None))
    tables.refresh()
    assert tables.values() == {}
    assert tables.files() == {}
    tables.append(Put(b"a", b"3"))
    tables.refresh()
    assert tables.values() == {b"a": b"3"}


@pytest.mark.long
def test_many_records_take_several_commits(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlogs, "_CHUNK_BYTES", 1)
    for start in range(0, 40, 10):
        puts = (Put(b"k%d" % n, b"v%d" % n, n % 2) for n in range(start, start + 10))
        tables.append(*puts)
    done = tables.refresh(bucket_bytes=1)
    assert done.commits > 3
    assert done.rows == 40
    assert tables.values() == tables.expected()


@pytest.mark.parametrize("is_one_at_a_time", [False, True])
def test_rows_that_are_archived_meanwhile_are_left_for_the_next_refresh(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, is_one_at_a_time: bool
) -> None:
    """Beside an archive that commits in each round, no refresh would end otherwise.

    Retention has removed all records of partition 2. If a round takes one row only, the rows of
    partition 0 must not keep partition 1 waiting.
    """
    commit_batch(tables.archive, Batch(TOPIC_ID, "", -1, {2: Extent(500, 500, 0)}, ()))
    tables.append(Put(b"a", b"0"), Put(b"b", b"0", 1))
    real, arrived = backlogs.take, list[int]()

    def take(*arguments: Any) -> Any:
        assert len(arrived) < 5, "the refresh does not end"
        arrived.append(1)
        tables.append(Put(b"a", b"%d" % len(arrived)))
        return real(*arguments)

    if is_one_at_a_time:
        monkeypatch.setattr(backlogs, "_CHUNK_BYTES", 1)
    monkeypatch.setattr("lakelog.tables.compacted.refresh.take", take)
    first = tables.refresh(bucket_bytes=1)
    assert first.rows == 2
    assert tables.values() == {b"a": b"0", b"b": b"0"}
    assert tables.refresh(bucket_bytes=1).rows == first.commits
    assert tables.values() == {b"a": b"%d" % first.commits, b"b": b"0"}


def test_rows_that_leave_the_archive_meanwhile_do_not_keep_a_refresh_from_its_end(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.append(*(Put(b"k%d" % number, b"v") for number in range(6)))
    real, rounds = backlogs.take, list[int]()

    def take(*arguments: Any) -> Any:
        taken = real(*arguments)
        rounds.append(1)
        assert len(rounds) < 5, "the refresh does not end"
        if len(rounds) == 1:
            cut(tables, 2)
        return taken

    monkeypatch.setattr("lakelog.tables.compacted.refresh.take", take)
    tables.refresh()
    assert set(tables.values()) == {b"k0", b"k1"}


def test_keys_in_several_partitions_have_the_newest_timestamp(tables: Tables) -> None:
    tables.append(Put(b"a", b"p0", 0, at=5), Put(b"a", b"p1", 1, at=9), Put(b"b", b"p1", 1, at=1))
    tables.refresh()
    assert tables.values() == {b"a": b"p1", b"b": b"p1"}
    tables.append(Put(b"a", b"late", 0, at=7), Put(b"b", None, 0, at=2))
    tables.refresh()
    assert tables.values() == {b"a": b"p1"}, "the row in the table takes part in the comparison"
    tables.append(Put(b"a", b"same partition", 1, at=3))
    tables.refresh()
    assert tables.values() == {b"a": b"same partition"}


def test_of_two_refreshes_at_once_one_commits(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.append(*(Put(b"k%d" % number, b"v") for number in range(40)))
    tables.refresh()
    tables.append(*(Put(b"k%d" % number, b"w") for number in range(10)))
    real, commits = Transaction.commit_transaction, list[int]()

    def late(self: Transaction) -> Any:
        if not commits and self._table.name()[-1] == "orders_latest":
            commits.append(1)
            tables.append(Put(b"k0", b"x"))
            assert tables.refresh().commits == 1
        return real(self)

    monkeypatch.setattr(Transaction, "commit_transaction", late)
    assert tables.refresh().commits == 0, "the other one has all records"
    assert tables.values() == tables.expected()
    assert data_files(tables) <= referenced_files(tables.place.address.load())


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_without_an_answer_is_found_or_repeated(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    tables.append(Put(b"a", b"1"))
    tables.refresh()
    tables.append(Put(b"a", None))
    real, commits = Transaction.commit_transaction, list[int]()

    def unanswered(self: Transaction) -> Any:
        if not self._updates:  # equal columns
            return real(self)
        commits.append(1)
        if is_committed or len(commits) > 1:
            real(self)
        if len(commits) == 1:
            raise ConnectionError("no answer")
        return None

    monkeypatch.setattr(Transaction, "commit_transaction", unanswered)
    assert tables.refresh().commits == 1
    assert tables.values() == {}


def test_files_of_a_commit_of_unknown_outcome_stay(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.append(Put(b"a", b"1"))
    tables.refresh()
    tables.append(Put(b"a", b"2"))

    def silent(self: Transaction) -> None:
        if self._updates:  # columns are equal otherwise
            raise ConnectionError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "_ATTEMPTS_MAX", 2)
        patch.setattr(Transaction, "commit_transaction", silent)
        with pytest.raises(UnknownOutcomeError):
            tables.refresh()
    assert len(data_files(tables)) == 2
    tables.refresh()
    assert tables.values() == {b"a": b"2"}


def test_a_failure_leaves_no_file(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.append(Put(b"a", b"1"))
    tables.refresh()
    before = data_files(tables)
    tables.append(*(Put(b"k%d" % number, b"w") for number in range(40)))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr("lakelog.tables.compacted.refresh.note_replaced", full)
    with pytest.raises(OSError, match="no space"):
        tables.refresh()
    assert data_files(tables) == before


def test_a_stopped_refresh_commits_nothing(tables: Tables) -> None:
    tables.append(Put(b"a", b"1"))
    stop = threading.Event()
    stop.set()
    done = Refresh(tables.place, tables.notices.append, stop).run(tables.version())
    assert done.commits == 0
    assert not tables.place.address.exists()


def rolled_back(tables: Tables) -> None:
    table = load_for_commit(tables.place.address)
    first = min(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()


def foreign_delete(tables: Tables) -> None:
    """Another program sets the progress, too."""
    with tables.place.address.load().transaction() as transaction:
        transaction.set_properties({f"lakelog.latest.{TOPIC_ID}": "{}"})


def new_archive(tables: Tables) -> None:
    table = tables.place.address.load()
    name = f"lakelog.latest.{TOPIC_ID}"
    text = table.properties[name].replace(str(tables.archive.load().metadata.table_uuid), "other")
    with table.transaction() as transaction:
        transaction.update_snapshot(snapshot_properties={name: text}).fast_append().commit()
        transaction.set_properties({name: text})


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (rolled_back, "was rolled back or changed"),
        (foreign_delete, "cannot be read"),
        (new_archive, "rows of an archive that was dropped"),
    ],
)
def test_disagreement_is_named_and_a_rebuild_settles_it(
    tables: Tables, damage: Callable[[Tables], None], expected: str
) -> None:
    tables.append(Put(b"a", b"1"), Put(b"b", b"2"), Put(b"c", b"2"))
    tables.refresh()
    tables.append(Put(b"a", None), Put(b"c", b"3"))
    tables.refresh()
    damage(tables)
    with pytest.raises(CompactedTableError, match=expected) as failure:
        tables.refresh()
    assert "--rebuild" in str(failure.value)
    tables.refresh(rebuild=True)
    assert tables.values() == {b"b": b"2", b"c": b"3"}
    tables.append(Put(b"b", None))
    tables.refresh()
    assert tables.values() == {b"c": b"3"}


def test_rows_that_left_the_archive_leave_the_table(tables: Tables) -> None:
    tables.append(Put(b"a", b"1"), Put(b"b", b"2"))
    tables.append(Put(b"a", b"lost"), Put(b"d", b"lost"))
    tables.refresh()
    cut(tables, 2)
    tables.append(Put(b"c", b"3"))
    tables.append(Put(b"c", b"4"))
    tables.refresh()
    assert tables.values() == {b"a": b"1", b"b": b"2", b"c": b"4"}
    assert "is computed again" in tables.notices[0]
