"""How table and log are brought into agreement before a query starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from lakelog.client.offsets import EpochEnd
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.history import ProgressMismatchError, agreed_progress, skipped_between
from lakelog.tables.archive.progress import (
    ArchiveJob,
    Extent,
    Progress,
    property_name,
    read_progress,
)
from lakelog.tables.archive.reconcile import ProgressSource, Reconciler
from lakelog.tables.archive.refusals import Span
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError, LogDivergedError
from lakelog.tables.topic.offsets import TopicPartition
from unit.tables.archive_log import EPOCH, Log
from unit.tables.archive_table import offsets, write_batch

TOPIC_ID = "id"


class Archive:
    """One table, reconciled with one log after another."""

    def __init__(self, address: TableAddress) -> None:
        self.address = address
        self.notices: list[str] = []

    @property
    def table(self) -> Table:
        return self.address.load()

    @property
    def progress(self) -> dict[int, Extent]:
        return dict(agreed_progress(self.table, TOPIC_ID).extents)

    def append(self, start: int, end: int, *, leader_epoch: int = EPOCH) -> None:
        """A batch of partition 0."""
        batch = write_batch(self.address, start, end, topic_id=TOPIC_ID, leader_epoch=leader_epoch)
        commit_batch(self.address, batch)

    def reconcile(
        self, log: Log, *, skip_lost: bool = False, adopt: ProgressSource | None = None
    ) -> int:
        job = ArchiveJob(
            bootstrap="b:1",
            topic="orders",
            topic_id=TOPIC_ID,
            catalog=dict(self.address.catalog),
            identifier=self.address.identifier,
            location="",
            batch_bytes=1000,
            tasks=2,
            raw_timestamp_id=0,
            skip_lost=skip_lost,
            uuid=self.address.uuid,
            extents={},
        )
        return Reconciler(job, adopt, self.notices.append).run(cast("TopicClient", log))


@pytest.fixture
def archive(address: TableAddress) -> Archive:
    return Archive(address)


def test_the_first_commit_names_every_partition(archive: Archive) -> None:
    archive.reconcile(Log({0: 0, 1: 9, 2: 30}, starts={2: 20}))

    assert archive.progress == {
        0: Extent(0, 0, EPOCH),
        1: Extent(0, 0, EPOCH),
        2: Extent(20, 20, EPOCH),
    }


def test_what_agrees_is_left_alone(archive: Archive) -> None:
    archive.reconcile(Log({0: 9, 1: 0}))
    archive.append(0, 9)
    before = archive.table.metadata_location

    assert archive.reconcile(Log({0: 12, 1: 5})) == 0

    assert archive.table.metadata_location == before
    assert archive.notices == []


def test_a_partition_that_comes_later_begins_at_0_or_is_a_loss(archive: Archive) -> None:
    archive.reconcile(Log({0: 0}))

    with pytest.raises(DataLossError, match=r"orders-1 \[0, 50\): retention or"):
        archive.reconcile(Log({0: 0, 1: 90}, starts={1: 50}))
    archive.reconcile(Log({0: 0, 1: 90}, starts={1: 50}), skip_lost=True)
    newest = archive.table.current_snapshot()
    assert newest is not None
    assert skipped_between(archive.table, None, newest.snapshot_id) == [Span(1, 0, 50)]
    archive.reconcile(Log({0: 0, 1: 90, 2: 7}, starts={1: 50}))

    assert archive.progress[1] == Extent(50, 50, EPOCH)
    assert archive.progress[2] == Extent(0, 0, EPOCH)


def test_records_trimmed_before_they_were_archived_are_a_loss(archive: Archive) -> None:
    """Also in a partition that was empty at the first commit."""
    archive.reconcile(Log({0: 0, 1: 5}))
    trimmed = Log({0: 90, 1: 5}, starts={0: 50})

    with pytest.raises(DataLossError, match=r"orders-0 \[0, 50\): retention or.*--skip-lost"):
        archive.reconcile(trimmed)
    archive.reconcile(trimmed, skip_lost=True)


def test_a_table_of_version_1_gets_the_epochs_of_now(archive: Archive) -> None:
    old = json.dumps({"ends": {"0": 5}, "query_id": "q", "batch": 7})
    batch = write_batch(archive.address, 0, 5)
    with archive.table.transaction() as transaction:
        summary = {"lakelog.query-id": "q", "lakelog.batch": "7"}
        transaction.add_files(list(batch.paths), snapshot_properties=summary)
        transaction.set_properties({property_name(TOPIC_ID): old})

    with pytest.raises(LogDivergedError, match="orders-0 ends at 4, but is archived up to 5"):
        archive.reconcile(Log({0: 4, 1: 3}))
    archive.reconcile(Log({0: 9, 1: 3}))

    assert archive.progress == {0: Extent(-1, 5, EPOCH), 1: Extent(0, 0, EPOCH)}


CUT = Log({0: 14}, earlier={0: 6})
"""Archived up to 10, cut at 6, and grown again since."""


def test_a_topic_that_is_created_again_meanwhile_moves_no_rows(archive: Archive) -> None:
    class Replaced(Log):
        def epoch_ends(
            self, epochs: Mapping[TopicPartition, int]
        ) -> dict[TopicPartition, EpochEnd]:
            self.topic_id = "another"
            return super().epoch_ends(epochs)

    archive.reconcile(Log({0: 10}))
    archive.append(0, 10)

    with pytest.raises(DataLossError, match="deleted and created again"):
        archive.reconcile(Replaced({0: 3}), skip_lost=True)

    assert offsets(archive.table) == list(range(10))


def test_a_log_that_was_cut_and_grew_stops_the_job(archive: Archive) -> None:
    archive.reconcile(Log({0: 10}))
    archive.append(0, 10)

    with pytest.raises(LogDivergedError) as failure:
        archive.reconcile(CUT)

    for part in (
        "orders-0",
        "read up to offset 10 in leader epoch 4, but epoch 4 ends at 6",
        "lakelog.orders",
        "partition 0 offsets [6, 10)",
        "--skip-lost moves these rows out",
    ):
        assert part in str(failure.value)
    assert offsets(archive.table) == list(range(10))


def test_rows_of_lost_records_move_to_a_tagged_snapshot(archive: Archive) -> None:
    archive.reconcile(Log({0: 10, 1: 3}))
    archive.append(0, 4)
    archive.append(4, 8)
    archive.append(8, 10)

    assert archive.reconcile(Log({0: 14, 1: 3}, earlier={0: 6}), skip_lost=True) == 4

    table = archive.table
    assert offsets(table) == list(range(6))
    assert archive.progress == {0: Extent(0, 6, EPOCH), 1: Extent(0, 0, EPOCH)}
    (tag,) = (name for name in table.metadata.refs if name.startswith("lakelog-lost-"))
    assert offsets(table, table.metadata.refs[tag].snapshot_id) == list(range(10))
    assert read_progress(table.properties, TOPIC_ID).rewinds == 1
    (line,) = archive.notices
    assert "4 rows of lakelog.orders (partition 0 offsets [6, 10))" in line
    assert tag in line

    archive.append(6, 14, leader_epoch=EPOCH + 1)
    assert offsets(archive.table) == list(range(14))


def test_rows_beside_lost_ones_are_not_changed(archive: Archive) -> None:
    """PyIceberg would turn null headers into empty lists."""
    archive.reconcile(Log({0: 10}))
    batch = write_batch(
        archive.address, 0, 10, topic_id=TOPIC_ID, leader_epoch=EPOCH, headers=False
    )
    commit_batch(archive.address, batch)

    assert archive.reconcile(CUT, skip_lost=True) == 4

    (task,) = archive.table.scan().plan_files()
    assert pq.read_table(task.file.file_path)["headers"].to_pylist() == [None] * 6


def test_a_lost_tail_without_rows_moves_only_the_progress(archive: Archive) -> None:
    """Offsets of control records have none."""
    archive.reconcile(Log({0: 10}))
    archive.append(0, 5)
    commit_batch(
        archive.address,
        write_batch(archive.address, 5, 10, topic_id=TOPIC_ID, leader_epoch=EPOCH, rows=False),
    )

    assert archive.reconcile(CUT, skip_lost=True) == 0

    assert archive.progress == {0: Extent(0, 6, EPOCH)}
    assert offsets(archive.table) == list(range(5))


def test_a_log_whose_epochs_are_older_than_the_tables_is_another_one(archive: Archive) -> None:
    """As after a restore from a backup: the offset at which the logs diverge is unknown."""
    archive.reconcile(Log({0: 10}))
    archive.append(0, 10)

    with pytest.raises(LogDivergedError, match=r"was replaced.*a table of another name"):
        archive.reconcile(Log({0: 20}, earlier={0: -1}), skip_lost=True)


def rolled_back(archive: Archive) -> Table:
    """The property says 9, the current snapshot 5."""
    archive.reconcile(Log({0: 9}))
    archive.append(0, 5)
    first = archive.table.metadata.current_snapshot_id or 0
    archive.append(5, 9)
    archive.table.manage_snapshots().rollback_to_snapshot(first).commit()
    return archive.table


def test_a_rollback_stops_the_job_with_the_way_out(archive: Archive) -> None:
    rolled_back(archive)

    with pytest.raises(ProgressMismatchError) as failure:
        archive.reconcile(Log({0: 12}))

    assert "--adopt snapshot" in str(failure.value)
    assert "--adopt property" in str(failure.value)


@pytest.mark.parametrize(("source", "end"), [("snapshot", 5), ("property", 9)])
def test_a_rollback_is_settled_by_choice(archive: Archive, source: str, end: int) -> None:
    rolled_back(archive)

    archive.reconcile(Log({0: 12}), adopt=ProgressSource(source))

    assert archive.progress == {0: Extent(0, end, EPOCH)}
    assert source in archive.notices[0]
    assert read_progress(archive.table.properties, TOPIC_ID).rewinds == 1
    archive.append(end, 12)
    assert offsets(archive.table) == [*range(5), *range(end, 12)]
    archive.reconcile(Log({0: 12}), adopt=ProgressSource(source))
    assert len(archive.notices) == 1, "an agreement needs no choice"


def test_a_choice_that_cannot_be_kept_is_refused(archive: Archive) -> None:
    archive.reconcile(Log({0: 9}))
    archive.append(0, 5)
    ours = [each.snapshot_id for each in archive.table.snapshots()]
    row: Any = archive.table.scan(limit=1).to_arrow()
    archive.table.append(row)
    archive.table.maintenance.expire_snapshots().by_ids(ours).commit()

    with pytest.raises(ProgressMismatchError, match=r"no kept snapshot.*table of another name"):
        archive.reconcile(Log({0: 9}), adopt=ProgressSource.SNAPSHOT)
    archive.reconcile(Log({0: 9}), adopt=ProgressSource.PROPERTY)
    assert archive.progress == {0: Extent(0, 5, EPOCH)}


def test_a_topic_of_another_id_is_not_touched(archive: Archive) -> None:
    class Another(Log):
        def describe(self, names: Any) -> Any:
            metas = super().describe(names)
            return {name: type(meta)(name, "new", meta.partitions) for name, meta in metas.items()}

    with pytest.raises(DataLossError, match="deleted and created again"):
        archive.reconcile(Another({0: 0}))
    assert agreed_progress(archive.table, TOPIC_ID) == Progress()
