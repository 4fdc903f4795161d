"""Logs follow the metadata image, on a disk in memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from lakelog.base.broker_config import BrokerConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    Record,
    ResourceType,
    TopicRecord,
    TopicRemoved,
)
from lakelog.replica.partitions import Partitions
from lakelog.server.replicas import DeletedTopics, Replicas
from lakelog.storage.directory import LogDirectory
from lakelog.testing.disk import MemoryDisk
from lakelog.testing.randomness import SeededRandom
from storage_kit import NOW, ManualClock, make_batch

DATA = Path("/data")
NODE = 1
ORDERS = b"o" * 16
PAYMENTS = b"p" * 16


class Node:
    """A broker's replicas over one disk; `restart` is what a new process would see."""

    def __init__(self, disk: MemoryDisk, image: MetadataImage) -> None:
        self.disk = disk
        self.image = image
        self.partitions = Partitions()
        self.directory = LogDirectory(DATA, disk, ManualClock(), SeededRandom(1))
        self.directory.open(None, NODE)
        config = BrokerConfig({})
        self.replicas = Replicas(
            NODE, self.directory, self.partitions, lambda: config, lambda partition: None
        )
        self.replicas.load(image)

    def apply(self, records: Iterable[Record], *, named: bool = True) -> DeletedTopics:
        records = tuple(records)
        old, self.image = self.image, self.image.apply_all(records, self.image.end + 1)
        return self.replicas.update(old, self.image, records if named else ())

    def names(self) -> list[str]:
        return sorted(f"{entry.topic}-{entry.index}" for entry in self.partitions)

    def directories(self) -> list[str]:
        return [name for name in self.disk.list(DATA) if self.disk.is_dir(DATA / name)]

    def restart(self, *, clean: bool = True) -> Node:
        self.directory.close(clean=clean)
        return Node(self.disk, self.image)


def topic(name: str, topic_id: bytes, partitions: int, epoch: int = 0) -> list[Record]:
    rows: list[Record] = [TopicRecord(name, topic_id)]
    for index in range(partitions):
        rows.append(PartitionRecord(topic_id, index, (NODE,), (NODE,), NODE, epoch, 0))
    return rows


@pytest.fixture(params=[True, False], ids=["by records", "by comparison"])
def named(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def node() -> Node:
    return Node(MemoryDisk(ManualClock()), MetadataImage())


def test_a_topic_comes_and_goes(node: Node, named: bool) -> None:
    assert node.apply(topic("orders", ORDERS, 2), named=named) == []
    assert node.names() == ["orders-0", "orders-1"]
    assert node.directories() == ["orders-0", "orders-1"]
    partition = node.partitions.find(ORDERS, 0)
    assert node.apply([TopicRemoved(ORDERS)], named=named) == [("orders", ORDERS)]
    assert node.names() == []
    assert all(name.endswith("-delete") for name in node.directories())
    with pytest.raises(KafkaError) as unknown:
        node.partitions.find(ORDERS, 0)
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_ID
    with pytest.raises(KafkaError) as gone:
        partition.append(make_batch(), NOW)
    assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_made_again_is_another(node: Node) -> None:
    node.apply(topic("orders", ORDERS, 1))
    node.partitions.find("orders", 0).append(make_batch(3), NOW)
    node.apply([TopicRemoved(ORDERS), *topic("orders", PAYMENTS, 1)])
    assert node.partitions.find("orders", 0).log.log_end_offset == 0
    assert node.partitions.find("orders", 0).topic_id == PAYMENTS
    assert node.partitions.get(ORDERS, 0) is None


def test_partitions_are_added(node: Node, named: bool) -> None:
    node.apply(topic("orders", ORDERS, 1), named=named)
    node.apply([PartitionRecord(ORDERS, 1, (NODE,), (NODE,), NODE, 0, 0)], named=named)
    assert node.names() == ["orders-0", "orders-1"]


def test_only_the_configured_topic_changes(node: Node, named: bool) -> None:
    node.apply([*topic("orders", ORDERS, 1), *topic("payments", PAYMENTS, 1)], named=named)
    node.apply([ConfigRecord(ResourceType.TOPIC, "orders", "retention.ms", "5")], named=named)
    assert node.partitions.find("orders", 0).log.config.retention_ms == 5
    assert node.partitions.find("payments", 0).log.config.retention_ms > 5


def test_records_and_epochs_survive_a_restart(node: Node) -> None:
    node.apply(topic("orders", ORDERS, 1, epoch=4))
    node.partitions.find("orders", 0).append(make_batch(3), NOW)
    node.image = node.image.apply_all(
        [PartitionRecord(ORDERS, 0, (NODE,), (NODE,), NODE, 5, 1)], node.image.end + 1
    )
    after = node.restart().partitions.find("orders", 0)
    assert after.log.log_end_offset == 3
    assert after.leader_epoch == 5
    after.append(make_batch(), NOW)
    assert after.log.leader_epochs.entries == [(4, 0), (5, 3)]


def test_a_crash_between_the_record_and_the_files_is_put_right(node: Node) -> None:
    node.image = node.image.apply_all(topic("orders", ORDERS, 2), 1)
    again = node.restart()
    assert again.names() == ["orders-0", "orders-1"]
    again.image = again.image.apply_all([TopicRemoved(ORDERS)], 2)
    last = again.restart()
    assert last.names() == []
    assert all("-stray" in name for name in last.directories())


def test_a_log_that_cannot_be_made_is_offline_and_the_others_serve(node: Node) -> None:
    node.disk.make_dirs(DATA / "orders-1")
    node.apply(topic("orders", ORDERS, 3))
    assert node.names() == ["orders-0", "orders-2"]
    with pytest.raises(KafkaError) as offline:
        node.partitions.find("orders", 1)
    assert offline.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    node.apply([TopicRemoved(ORDERS)])
    with pytest.raises(KafkaError) as unknown:
        node.partitions.find("orders", 1)
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_directory_that_cannot_be_renamed_does_not_come_back_as_the_next_topic(
    node: Node,
) -> None:
    node.apply([*topic("orders", ORDERS, 2), *topic("payments", PAYMENTS, 1)])
    node.partitions.find("orders", 0).append(make_batch(3), NOW)
    node.disk.remove_tree(DATA / "orders-0")
    assert node.apply([TopicRemoved(ORDERS)]) == [("orders", ORDERS)]
    assert node.names() == ["payments-0"]
    again = b"n" * 16
    node.apply(topic("orders", again, 2))
    assert node.names() == ["orders-0", "orders-1", "payments-0"]
    assert node.partitions.find("orders", 0).topic_id == again
    assert node.partitions.find("orders", 0).log.log_end_offset == 0


def test_a_log_that_cannot_be_closed_does_not_keep_the_others_from_it(node: Node) -> None:
    node.apply([*topic("orders", ORDERS, 1), *topic("payments", PAYMENTS, 1)])
    for name in ("orders", "payments"):
        node.partitions.find(name, 0).append(make_batch(3), NOW)
    node.disk.remove_tree(DATA / "orders-0")
    node.directory.close()
    assert node.partitions.find("payments", 0).log.recovery_point == 3
    assert not node.disk.exists(DATA / ".kafka_cleanshutdown")
