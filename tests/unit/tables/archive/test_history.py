"""The table's property and its current snapshot must agree.

Offsets that the archive skipped, in the summaries of snapshots.
"""

from __future__ import annotations

import json

import pytest
from pyiceberg.table import Table

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.history import (
    NAME,
    REFUSED,
    ProgressMismatchError,
    agreed_progress,
    before_extents,
    merge,
    record,
    recorded_progress,
    summary_entry,
)
from lakelog.tables.archive.progress import Extent, Progress, property_name, read_progress
from lakelog.tables.archive.refusals import Span
from lakelog.tables.iceberg.address import TableAddress
from unit.tables.archive_table import TOPIC_ID, files, offsets, write_batch


def archive(address: TableAddress, *ends: int) -> Table:
    """A batch up to each of `ends`."""
    start = 0
    for number, end in enumerate(ends):
        commit_batch(address, write_batch(address, start, end, number))
        start = end
    return address.load()


def write_elsewhere(address: TableAddress) -> None:
    """Another program appends a row."""
    table = address.load()
    table.append(table.scan(limit=1).to_arrow())


def test_the_progress_stands_in_the_snapshot_too(address: TableAddress) -> None:
    assert agreed_progress(address.load(), TOPIC_ID) == Progress()

    table = archive(address, 5, 9)

    expected = Progress({0: Extent(0, 9, 0)}, "query", 1)
    assert recorded_progress(table, TOPIC_ID).progress == expected
    assert agreed_progress(table, TOPIC_ID) == expected


def test_a_table_that_was_rolled_back_is_not_gone_on_with(address: TableAddress) -> None:
    table = archive(address, 100, 150)
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    batch = write_batch(address, 150, 160, 2)

    with pytest.raises(ProgressMismatchError, match=r"\{0: 150\}.*\{0: 100\}"):
        commit_batch(address, batch)

    assert offsets(address.load()) == list(range(100))
    assert files(address) == 2, "the batch was certainly not committed"


def test_another_programs_snapshot_on_top_is_no_disagreement(address: TableAddress) -> None:
    archive(address, 5)
    write_elsewhere(address)
    write_elsewhere(address)

    commit_batch(address, write_batch(address, 5, 9, 1))

    assert offsets(address.load()) == [0, 0, 0, *range(1, 9)]


def test_another_programs_snapshot_on_a_rollback_hides_nothing(address: TableAddress) -> None:
    table = archive(address, 5, 9)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    write_elsewhere(address)

    with pytest.raises(ProgressMismatchError, match=r"\{0: 9\}.*\{0: 5\}"):
        commit_batch(address, write_batch(address, 9, 12, 2))


def test_a_rollback_to_before_the_archive_is_noticed(address: TableAddress) -> None:
    table = address.load()
    table.append(table.scan().to_arrow())
    before = address.load().metadata.current_snapshot_id or 0
    archive(address, 5).manage_snapshots().rollback_to_snapshot(before).commit()

    with pytest.raises(ProgressMismatchError, match="without a record of the progress"):
        commit_batch(address, write_batch(address, 5, 9, 1))


def test_expired_history_that_cannot_be_compared_stops_the_job(address: TableAddress) -> None:
    table = archive(address, 5)
    ours = table.metadata.current_snapshot_id or 0
    write_elsewhere(address)
    address.load().maintenance.expire_snapshots().by_id(ours).commit()

    with pytest.raises(ProgressMismatchError, match=r"\{0: 5\}.*without a record of the progress"):
        commit_batch(address, write_batch(address, 5, 9, 1))


def make_version_1(address: TableAddress) -> None:
    """Property and last snapshot as an earlier version left them: ends only, no progress."""
    table = address.load()
    end = agreed_progress(table, TOPIC_ID).ends[0]
    old = json.dumps({"ends": {"0": end + 1}, "query_id": "q", "batch": 7})
    batch = write_batch(address, end, end + 1)
    with table.transaction() as transaction:
        summary = {"lakelog.query-id": "q", "lakelog.batch": "7"}
        transaction.add_files(list(batch.paths), snapshot_properties=summary)
        transaction.set_properties({property_name(TOPIC_ID): old})


def test_a_table_of_version_1_is_gone_on_with(address: TableAddress) -> None:
    archive(address, 4)
    make_version_1(address)

    commit_batch(address, write_batch(address, 5, 9, 1, leader_epoch=3))

    assert agreed_progress(address.load(), TOPIC_ID).extents == {0: Extent(-1, 9, 3)}


def test_a_table_of_version_1_that_was_rolled_back_is_noticed(address: TableAddress) -> None:
    archive(address, 4)
    make_version_1(address)
    table = address.load()
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()

    with pytest.raises(ProgressMismatchError):
        commit_batch(address, write_batch(address, 5, 9, 1))


def test_adjacent_pieces_are_one_and_others_stay_apart() -> None:
    pieces = [Span(0, 10, 12), Span(1, 12, 13), Span(0, 0, 5), Span(0, 5, 10)]
    assert merge(pieces) == [Span(0, 0, 12), Span(1, 12, 13)]
    assert merge([Span(0, 0, 5), Span(0, 6, 7)]) == [Span(0, 0, 5), Span(0, 6, 7)]


def test_a_commit_records_its_pieces_by_partition() -> None:
    entry = summary_entry([Span(1, 4, 6), Span(0, 2, 4), Span(0, 0, 2)])
    assert json.loads(entry[NAME]) == {"0": [[0, 4]], "1": [[4, 6]]}
    assert summary_entry([]) == {}


def test_offsets_of_a_new_partition_that_retention_removed_were_skipped() -> None:
    known = Progress({0: Extent(3, 9, 1)})
    extents = {0: Extent(3, 9, 1), 1: Extent(7, 7, 1), 2: Extent(0, 0, 1)}
    assert before_extents(known, extents) == [Span(1, 0, 7)]


def test_a_new_archive_begins_where_the_log_begins_and_skips_nothing() -> None:
    assert before_extents(Progress({}), {0: Extent(7, 7, 1)}) == []


def test_files_property_and_summary_are_of_one_commit(address: TableAddress) -> None:
    progress = Progress({0: Extent(0, 5, 1)}, "q", 1)
    paths = write_batch(address, 0, 3).paths
    with address.load().transaction() as transaction:
        lost, refused = [Span(0, 3, 4)], [Span(0, 4, 5)]
        record(transaction, TOPIC_ID, progress, paths, lost, refused)
    table = address.load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    assert read_progress(table.properties, TOPIC_ID) == progress
    assert read_progress(summary, TOPIC_ID) == progress
    assert json.loads(summary[NAME]) == {"0": [[3, 4]]}
    assert json.loads(summary[REFUSED]) == {"0": [[4, 5]]}
    assert len(table.scan().to_arrow()) == 3
