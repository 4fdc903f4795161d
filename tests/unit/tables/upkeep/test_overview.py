from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.upkeep.overview import PartitionOverview, overview
from unit.tables.archive_log import Log
from unit.tables.archive_table import write_batch
from unit.tables.hybrid.kit import archive_of


class Topic(Log):
    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.log_end(partitions)


def test_a_table_is_compared_with_its_log(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 2, 7))
    commit_batch(address, write_batch(address, 7, 9, 1))
    found = overview(cast("TopicClient", Topic({0: 12}, {0: 5})), archive_of(address))
    assert (found.rows, found.files, found.small_files, found.snapshots) == (7, 2, 2, 2)
    (one,) = found.partitions
    assert one == PartitionOverview(0, 2, 9, 5, 12)
    assert (one.lag, one.only_in_table) == (3, 3)


def test_partitions_without_archived_records_have_a_lag(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 7))
    log = Topic({0: 7, 1: 30}, {1: 20})
    found = overview(cast("TopicClient", log), archive_of(address))
    assert found.partitions[1] == PartitionOverview(1, 20, 20, 20, 30)
    assert [each.lag for each in found.partitions] == [0, 10]


def test_offsets_that_left_the_log_unarchived_are_no_lag() -> None:
    assert PartitionOverview(0, 2, 9, 11, 12).lag == 1
    assert PartitionOverview(0, 2, 9, 11, 12).only_in_table == 7
