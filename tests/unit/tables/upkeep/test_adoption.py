from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import pytest

from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.history import ProgressMismatchError, agreed_progress
from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.archive.progress import Extent
from lakelog.tables.archive.reconcile import Reconciler
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.upkeep.adoption import adopt_rows
from unit.tables.archive_log import Log
from unit.tables.archive_table import TOPIC_ID, write_batch


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
