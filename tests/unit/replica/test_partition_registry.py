from __future__ import annotations

import errno

import pytest

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.storage.folder.directory import LogDirectory
from storage_kit import DATA, ManualClock, create_log, sole_leader

OLD, NEW, OTHER = (bytes([number]) * 16 for number in (1, 2, 3))


class Topics:
    """Partitions of topics in a folder of their own."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.directory = LogDirectory(DATA, MemoryDisk(clock), clock, SeededRandom(1))
        self.directory.open(None, 1)
        self.partitions = PartitionRegistry()

    def create(self, name: str, topic_id: bytes, index: int) -> Partition:
        log = create_log(self.directory, name, index, topic_id, LogConfig())
        partition = Partition(log, sole_leader(0), lambda _: None)
        self.partitions.add(partition)
        return partition

    def delete(self, partition: Partition) -> None:
        self.partitions.remove(partition)
        self.directory.schedule_delete(partition.log)

    def code(self, topic: str | bytes, index: int) -> ErrorCode:
        try:
            self.partitions.leader(topic, index)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


def test_an_id_is_known_as_long_as_a_partition_has_it() -> None:
    topics = Topics()
    assert topics.code(OLD, 0) is ErrorCode.UNKNOWN_TOPIC_ID
    first, second = (topics.create("orders", OLD, index) for index in (0, 1))
    assert topics.code(OLD, 1) is ErrorCode.NONE
    assert topics.code(OLD, 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics.delete(first)
    assert topics.code(OLD, 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics.delete(second)
    assert topics.code(OLD, 0) is ErrorCode.UNKNOWN_TOPIC_ID
    assert topics.code("orders", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(topics.partitions) == 0


def test_a_topic_that_is_made_again_has_nothing_of_the_old_one() -> None:
    topics = Topics()
    other = topics.create("other", OTHER, 0)
    for old in [topics.create("orders", OLD, index) for index in range(3)]:
        topics.delete(old)
    new = topics.create("orders", NEW, 0)
    assert topics.code(OLD, 0) is ErrorCode.UNKNOWN_TOPIC_ID
    assert topics.code(NEW, 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topics.partitions.leader(NEW, 0) is topics.partitions.leader("orders", 0) is new
    assert list(topics.partitions) == [other, new]


def test_a_partition_that_is_gone_is_not_flushed_by_age() -> None:
    topics = Topics()
    partition = topics.create("orders", OLD, 0)
    partition.log.use_config(LogConfig(flush_ms=1000))
    topics.partitions.note_config(partition)
    assert list(topics.partitions.flushed_by_age) == [partition]
    topics.delete(partition)
    assert not topics.partitions.flushed_by_age


def test_a_partition_that_is_added_again_counts_once() -> None:
    topics = Topics()
    partition = topics.create("orders", OLD, 0)
    topics.partitions.add(partition)
    topics.delete(partition)
    assert topics.code(OLD, 0) is ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("is_served", [False, True])
def test_a_partition_that_cannot_be_used_is_known(is_served: bool, times: int) -> None:
    topics = Topics()
    served = topics.create("orders", OLD, 1) if is_served else None
    for _ in range(times):
        topics.partitions.add_offline("orders", OLD, 0, "its log is damaged")
    assert topics.code(OLD, 0) is topics.code("orders", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert topics.code(OLD, 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topics.partitions.is_offline("orders", 0)
    topics.partitions.forget_offline("orders", OLD)
    left = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_served else ErrorCode.UNKNOWN_TOPIC_ID
    assert topics.code(OLD, 0) is left
    if served is not None:
        topics.delete(served)
    assert topics.code(OLD, 1) is ErrorCode.UNKNOWN_TOPIC_ID


def test_offline_are_partitions_whose_logs_cannot_be_opened_or_have_failed() -> None:
    topics = Topics()
    failed, other = topics.create("orders", OLD, 0), topics.create("orders", OLD, 1)
    topics.partitions.add_offline("orders", OLD, 2, "it cannot be opened")
    failed.take_offline("a bad sector")
    for each in (failed, other):
        topics.partitions.note_offline(each)
    assert topics.partitions.offline_keys == {(OLD, 0), (OLD, 2)}
    topics.delete(failed)
    topics.partitions.note_offline(failed)
    topics.partitions.forget_offline("orders", OLD)
    assert topics.partitions.offline_keys == frozenset()


def test_a_file_that_cannot_be_read_takes_the_partition_of_its_log_offline() -> None:
    topics, error = Topics(), OSError(errno.EIO, "Input/output error")
    old, other = topics.create("t", OLD, 0), topics.create("t", OLD, 1)
    file = old.log.segments.active.open().file
    topics.delete(old)
    new = topics.create("t", NEW, 0)
    assert new.log.segments.active.open().file.path == file.path
    topics.partitions.note_unreadable(file, error)
    assert new.is_online, "the file is of the deleted log"
    topics.partitions.note_unreadable(new.log.segments.active.open().file, error)
    assert (new.is_online, other.is_online) == (False, True)
