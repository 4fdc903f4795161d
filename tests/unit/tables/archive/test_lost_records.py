"""Rows of lost records leave the table, and all other rows stay as they are.

Dead letters of records that the log has lost.

Dead letters of a batch whose rows were never committed.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import DataScan, FileScanTask

from lakelog.client.offsets import EpochEnd
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.dead_letters import (
    commit_dead_letters,
    dead_letters_of,
    dead_letters_progress,
)
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.history import agreed_progress
from lakelog.tables.archive.lost_records import (
    LOST_TAG,
    check_pending_dead_letters,
    cut_lost_dead_letters,
    dead_letters_ahead,
    refused_before,
    remove_rows,
)
from lakelog.tables.archive.progress import Extent
from lakelog.tables.archive.refusals import BAD_TIMESTAMP, OnBadRecord, RefusedCount, Span
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.columns import ARROW_SCHEMA, parse_terms
from lakelog.tables.iceberg.table import ensure_table, load_for_commit
from lakelog.tables.iceberg.warehouse import open_warehouse
from lakelog.tables.topic.offsets import Divergence
from lakelog.tables.typed.columns import widen
from lakelog.tables.typed.shapes import shape_of
from unit.tables.archive_table import TOPIC_ID, files, folder, offsets, write_batch
from unit.tables.dead_letters import dead_letters, job_of, with_dead_letters

HEADERS: tuple[list[dict[str, Any]] | None, ...] = (
    None,
    [],
    [{"key": "h", "value": None}],
    [{"key": "", "value": b"x"}],
)
LISTS: tuple[list[dict[str, Any]] | None, ...] = (None, [], [{"a": 1}], [{"a": None}])


def append(address: TableAddress, partitions: int) -> list[dict[str, Any]]:
    """Append one file with offsets 0 to 7 of each partition, and null and empty lists in turn."""
    fields = widen(address, [shape_of([{"items": [{"a": 1}]}])])
    rows = [
        {
            "topic": "orders",
            "partition": partition,
            "offset": offset,
            "timestamp": offset,
            "timestampType": 0,
            "key": None if offset % 3 else b"",
            "value": None if offset % 2 else b"",
            "headers": HEADERS[offset % 4],
            "data": {"items": LISTS[(offset + 1) % 4]},
        }
        for partition in range(partitions)
        for offset in range(8)
    ]
    table = pa.Table.from_pylist(rows, pa.schema([*ARROW_SCHEMA, *fields]))
    path = folder(address) / "data" / f"{uuid.uuid4()}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, row_group_size=5)
    address.load().add_files([path.as_uri()])
    return list(table.to_pylist())


def stored(address: TableAddress) -> list[dict[str, Any]]:
    """The rows as the files have them; PyIceberg reads null lists of structs as empty ones."""
    paths = [task.file.file_path for task in address.load().scan().plan_files()]
    found = [row for path in paths for row in pq.read_table(path).to_pylist()]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def test_rows_that_stay_keep_their_null_and_empty_lists(address: TableAddress) -> None:
    rows = append(address, 2)
    before = address.load().current_snapshot()
    assert before is not None
    assert stored(address) == rows

    table = load_for_commit(address)
    lost = [Span(0, 3, 6)]
    assert remove_rows(address, table, "orders", lost, lambda _: {"done": "yes"}) == 3

    kept = [row for row in rows if row["partition"] or not 3 <= row["offset"] < 6]
    assert stored(address) == kept
    assert address.load().properties["done"] == "yes"
    assert len(offsets(address.load(), before.snapshot_id)) == 16


def test_only_files_with_lost_rows_are_rewritten(address: TableAddress) -> None:
    append(address, 1)
    before = [task.file.file_path for task in address.load().scan().plan_files()]
    table = load_for_commit(address)

    assert remove_rows(address, table, "other", [Span(0, 0, 9)], lambda _: {}) == 0
    assert remove_rows(address, table, "orders", [Span(1, 0, 9)], lambda _: {}) == 0

    assert [task.file.file_path for task in address.load().scan().plan_files()] == before


def test_a_file_of_lost_rows_only_has_no_successor(address: TableAddress) -> None:
    append(address, 1)
    table = load_for_commit(address)
    ranges = [Span(0, 0, 4), Span(0, 4, 99)]

    assert remove_rows(address, table, "orders", ranges, lambda _: {}) == 8

    assert stored(address) == []
    assert files(address) == 1, "an older snapshot still has the file"


@pytest.mark.parametrize("fails", [False, True])
def test_a_table_that_changed_stays_as_it_is(address: TableAddress, fails: bool) -> None:
    rows = append(address, 1)

    def entry(_: object) -> dict[str, str] | None:
        if fails:
            raise ZeroDivisionError
        return None

    table = load_for_commit(address)
    if fails:
        with pytest.raises(ZeroDivisionError):
            remove_rows(address, table, "orders", [Span(0, 3, 6)], entry)
    else:
        assert remove_rows(address, table, "orders", [Span(0, 3, 6)], entry) is None

    assert stored(address) == rows
    assert files(address) == 1


def test_rows_that_another_program_has_deleted_do_not_return(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg reads position deletes, but cannot write them."""
    rows = append(address, 1)
    (task,) = address.load().scan().plan_files()
    deletes = folder(address) / "data" / "deletes.parquet"
    positions = {"file_path": [task.file.file_path] * 3 + ["another"], "pos": [1, 4, 7, 0]}
    pq.write_table(pa.table(positions), deletes)
    found: Any = SimpleNamespace(file_path=deletes.as_uri())
    plan = DataScan.plan_files

    def plan_files(scan: DataScan) -> list[FileScanTask]:
        tasks = list(plan(scan))
        for each in tasks:
            if each.file.file_path == task.file.file_path:
                each.delete_files = [found]
        return tasks

    monkeypatch.setattr(DataScan, "plan_files", plan_files)
    table = load_for_commit(address)

    assert remove_rows(address, table, "orders", [Span(0, 3, 6)], lambda _: {}) == 2

    assert stored(address) == [rows[offset] for offset in (0, 2, 6)]


def test_a_table_with_partitions_keeps_its_rows_in_them(tmp_path: Path) -> None:
    address = TableAddress(open_warehouse(str(tmp_path)).catalog, ("lakelog", "orders"))
    ensure_table(address, partition_by=parse_terms(["partition", "hour(timestamp)"]))
    for number in range(2):
        batch = write_batch(address, number * 3600, number * 3600 + 4)
        address.load().add_files(list(batch.paths))
    table = load_for_commit(address)

    assert remove_rows(address, table, "orders", [Span(0, 2, 3602)], lambda _: {}) == 4

    assert offsets(address.load()) == [0, 1, 3602, 3603]
    hours = [task.file.partition[1] for task in address.load().scan().plan_files()]
    assert sorted(hours) == [0, 1]


def test_dead_letters_of_no_batch_go_with_their_records(address: TableAddress) -> None:
    commit_batch(address, with_dead_letters(address, 0, 5, (1, 1), leader_epoch=3))
    assert dead_letters_ahead(job_of(address)) == {}
    ahead = with_dead_letters(address, 5, 9, (5, 5), (7, 7), leader_epoch=3)
    assert ahead.dead_letters is not None
    commit_dead_letters(ahead.dead_letters, TOPIC_ID, "q", 1, ahead.extents)
    found = dead_letters_ahead(job_of(address))
    assert found == {0: Extent(0, 9, 3)}

    told: list[str] = []
    cut_lost_dead_letters(job_of(address), found, [], told.append)
    assert (len(dead_letters(address)), told) == (3, []), "the log has their records"
    cut = Divergence("orders", 0, 9, 3, EpochEnd(2, 6))
    cut_lost_dead_letters(job_of(address), found, [cut], told.append)

    table = dead_letters_of(address).load()
    assert [first for first, _, _ in dead_letters(address)] == [1, 5]
    assert dead_letters_progress(table, TOPIC_ID).extents == {0: Extent(0, 6, 2)}
    (tag,) = [name for name in table.metadata.refs if name.startswith(LOST_TAG)]
    assert tag in told[0]
    kept = table.scan(snapshot_id=table.metadata.refs[tag].snapshot_id).to_arrow()
    assert len(kept) == 3


def test_an_earlier_end_has_fewer_refused_offsets(address: TableAddress) -> None:
    commit_batch(address, with_dead_letters(address, 0, 9, (1, 2), (7, 7)))
    progress = agreed_progress(address.load(), TOPIC_ID)
    assert refused_before(job_of(address), progress, {0: Extent(0, 5)}) == {0: RefusedCount(2, 0)}
    assert refused_before(job_of(address), progress, {}) == {0: RefusedCount(3, 0)}


def begin(address: TableAddress, reason: str) -> None:
    """Commit a batch with a dead letter at 1, then only the dead letters of the next one, at 6 and
    7."""
    commit_batch(address, with_dead_letters(address, 0, 5, (1, 1), reason=reason))
    ahead = with_dead_letters(address, 5, 9, (6, 6), (7, 7), reason=reason, number=1)
    assert ahead.dead_letters is not None
    commit_dead_letters(ahead.dead_letters, TOPIC_ID, "query", 1, ahead.extents)


@pytest.mark.parametrize("errors", [OnBadRecord.STOP, OnBadRecord.SKIP])
def test_a_job_that_would_not_write_dead_letters_is_refused(
    address: TableAddress, errors: OnBadRecord
) -> None:
    begin(address, "bad")
    with pytest.raises(
        SyncError, match=r"2 dead letters, from orders-0@6 on.*--errors dead-letter"
    ):
        check_pending_dead_letters(job_of(address, errors))
    check_pending_dead_letters(job_of(address, OnBadRecord.DEAD_LETTER))


def test_a_job_with_a_column_for_timestamps_would_write_rows(address: TableAddress) -> None:
    begin(address, f"{BAD_TIMESTAMP}1 (milliseconds) is not possible")
    job = replace(job_of(address, OnBadRecord.DEAD_LETTER), raw_timestamp_id=9)
    with pytest.raises(SyncError, match="without --null-timestamps"):
        check_pending_dead_letters(job)


def test_damaged_batches_are_dead_letters_with_that_column_too(address: TableAddress) -> None:
    begin(address, "bad")
    check_pending_dead_letters(
        replace(job_of(address, OnBadRecord.DEAD_LETTER), raw_timestamp_id=9)
    )


def test_dead_letters_below_the_end_of_the_table_are_settled(address: TableAddress) -> None:
    commit_batch(address, with_dead_letters(address, 0, 5, (1, 1)))
    check_pending_dead_letters(job_of(address, OnBadRecord.STOP))
