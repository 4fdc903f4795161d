from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import pytest

from lakelog.client.consumer.fetch import Batch
from lakelog.records.batch import read_header
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.dead_letters import dead_letters_of
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.history import ProgressMismatchError, agreed_progress
from lakelog.tables.archive.progress import ArchiveJob, Extent
from lakelog.tables.archive.reconcile import Reconciler
from lakelog.tables.archive.refusals import RefusedCount
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.offsets import OffsetRange, TopicPartition
from lakelog.tables.upkeep import audit as module
from lakelog.tables.upkeep.audit import Audit, adopt_rows, audit
from storage_kit import make_batch
from unit.tables.archive_log import Log
from unit.tables.archive_table import TOPIC_ID, write_batch
from unit.tables.dead_letters import skipping, with_dead_letters
from unit.tables.hybrid.kit import archive_of


@dataclass
class ListedLog:
    """A stand-in for a client: the log has these offsets."""

    offsets: list[int]
    start: int = 0
    impossible: tuple[int, ...] = ()

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.start)

    def batches(self, wanted: OffsetRange) -> Iterator[Batch]:
        for offset in self.offsets:
            if wanted.start <= offset < wanted.end:
                batch = make_batch(1, timestamp=2**62 if offset in self.impossible else 1000)
                batch[:8] = offset.to_bytes(8, "big")
                yield read_header(batch), memoryview(batch)


def audited(address: TableAddress, log: ListedLog) -> Audit:
    return audit(cast("TopicClient", log), archive_of(address))


def test_a_table_with_every_record_once_is_sound(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WINDOW", 3)
    commit_batch(address, write_batch(address, 0, 5))
    commit_batch(address, write_batch(address, 5, 9, 1))
    found = audited(address, ListedLog(list(range(9)), start=2))
    (one,) = found.partitions
    assert found.is_sound
    assert (one.start, one.end, one.rows, one.compared, one.unverified) == (0, 9, 9, 7, 0)


def test_a_gap_that_the_log_explains_is_sound(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))
    commit_batch(address, write_batch(address, 5, 7, 1, rows=False))
    assert audited(address, ListedLog(list(range(5)))).is_sound
    (one,) = audited(address, ListedLog([], start=7)).partitions
    assert (one.is_sound, one.unverified) == (True, 2), "the log no longer has these offsets"


def test_wrong_offsets_are_named(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 5))
    commit_batch(address, write_batch(address, 5, 8, 1, rows=False))
    foreign = write_batch(address, 3, 5, 2).paths + write_batch(address, 11, 12, 2).paths
    address.load().add_files(list(foreign))
    found = audited(address, ListedLog([0, 1, 2, 3, 6]))
    (one,) = found.partitions
    assert not found.is_sound
    assert (one.duplicates.count, one.duplicates.first) == (2, [3, 4])
    assert one.outside.first == [11]
    assert one.missing.first == [6]
    assert one.extra.first == [4, 4]


def test_dead_letters_and_skipped_records_are_accounted_for(address: TableAddress) -> None:
    commit_batch(address, with_dead_letters(address, 0, 5, (1, 1)))
    commit_batch(address, skipping(with_dead_letters(address, 5, 9, (7, 7), number=1)))
    found = audited(address, ListedLog(list(range(9)), impossible=(1, 7)))
    (one,) = found.partitions
    assert found.is_sound
    assert (one.refused, one.rows, one.compared, one.unverified) == (RefusedCount(1, 1), 7, 7, 0)
    (one,) = audited(address, ListedLog([], start=9)).partitions
    assert (one.is_sound, one.unverified) == (True, 0), "each gap has its reason"


def test_refused_records_that_no_table_and_no_count_has_are_missing(address: TableAddress) -> None:
    commit_batch(address, skipping(with_dead_letters(address, 0, 5, (1, 1))))
    (one,) = audited(address, ListedLog(list(range(6)), impossible=(1, 2))).partitions
    assert one.is_sound, "the row of 2 has a null timestamp, perhaps"
    commit_batch(address, write_batch(address, 5, 8, 1, rows=False))
    (one,) = audited(address, ListedLog(list(range(8)), impossible=(1, 6, 7))).partitions
    assert (one.missing.count, one.wrong) == (3, 3), "5 has no row, and one of 1, 6, 7 is counted"


def test_lost_dead_letters_and_dead_letters_with_rows_are_wrong(address: TableAddress) -> None:
    commit_batch(address, with_dead_letters(address, 0, 5, (1, 1), (3, 3)))
    address.load().add_files(list(write_batch(address, 3, 4).paths))
    dead_letters_of(address).load().delete("offset = 1")
    (one,) = audited(address, ListedLog(list(range(5)), impossible=(1, 3))).partitions
    assert (one.doubled.first, one.lost_dead_letters) == ([3], 1)
    assert not one.is_sound


@dataclass
class Topic(Log):
    """Partition 0 is [0, 9), partition 1 is [4, 6)."""

    def __init__(self) -> None:
        super().__init__({0: 9, 1: 6}, {1: 4})
        self.topic_id = TOPIC_ID

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.log_end(partitions)


def job(address: TableAddress, topic: str = "orders") -> ArchiveJob:
    return ArchiveJob(
        bootstrap="b:1",
        topic=topic,
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


def fill(address: TableAddress, *ranges: tuple[int, int]) -> None:
    """Add rows as another program would, without a progress."""
    address.load().add_files([p for r in ranges for p in write_batch(address, *r).paths])


def adopt(address: TableAddress, topic: str = "orders") -> list[str]:
    notes: list[str] = []
    adopt_rows(job(address, topic), cast("TopicClient", Topic()), notes.append)
    return notes


def test_the_rows_of_another_program_become_the_progress(address: TableAddress) -> None:
    fill(address, (2, 4), (5, 7))
    assert adopt(address) == ["orders: adopted 4 rows of the table lakelog.orders"]
    progress = agreed_progress(address.load(), TOPIC_ID)
    assert progress.extents == {0: Extent(2, 7), 1: Extent(4, 4)}


def test_without_the_option_such_a_table_stops_the_job(address: TableAddress) -> None:
    fill(address, (2, 4))
    reconciler = Reconciler(job(address), None, print)
    with pytest.raises(ProgressMismatchError, match=r"has 2 rows .*--adopt rows"):
        reconciler.run(cast("TopicClient", Topic()))


@pytest.mark.parametrize(
    ("ranges", "topic", "error"),
    [
        (((2, 4), (3, 5)), "orders", "offset of orders-0 twice"),
        (((2, 4),), "other", "has rows of topic 'orders'"),
        (((2, 12),), "orders", "has orders-0@11, but the log ends at 9"),
    ],
)
def test_rows_that_cannot_be_of_the_topic_are_not_adopted(
    address: TableAddress, ranges: tuple[tuple[int, int], ...], topic: str, error: str
) -> None:
    fill(address, *ranges)
    with pytest.raises(SyncError, match=error):
        adopt(address, topic)


def test_a_table_with_a_progress_is_not_adopted_again(address: TableAddress) -> None:
    fill(address, (2, 4))
    adopt(address)
    with pytest.raises(SyncError, match="has a progress already"):
        adopt(address)
