from __future__ import annotations

import errno

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import iter_batches
from lakelog.server.coordinators.partition_log import LocalPartitionLog
from memory_broker import MemoryBroker
from storage_kit import make_batch


def log_of(world: MemoryBroker, topic: str = "orders") -> LocalPartitionLog:
    broker = world.broker
    parts = broker.partitions, broker.purgatory, broker.clock, world.tasks, broker.checks
    return LocalPartitionLog(topic, *parts)


@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
def test_an_append_is_committed_when_it_returns(world: MemoryBroker, durability: str) -> None:
    world.create("orders", durability=durability)
    log = log_of(world)
    assert world.run(log.append(0, make_batch(3))) == 0
    assert world.partition("orders").watermark.offset == 3
    assert world.run(log.append(0, make_batch(2))) == 3


def test_a_log_is_read_batch_by_batch_from_its_start(world: MemoryBroker) -> None:
    world.create("orders")
    log = log_of(world)
    for _ in range(2):
        world.run(log.append(0, make_batch(2)))
    assert world.run(log.start_offset(0)) == 0
    found = [header.base_offset for header, _ in iter_batches(world.run(log.read(0, 1)))]
    assert found[0] == 0
    assert world.run(log.read(0, 4)) == b""
    world.partition("orders").delete_records(2)
    assert world.run(log.start_offset(0)) == 2


def test_a_partition_that_does_not_exist_is_an_error(world: MemoryBroker) -> None:
    with pytest.raises(KafkaError) as error:
        world.run(log_of(world, "gone").append(0, make_batch()))
    assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_device_that_fails_is_an_error(world: MemoryBroker) -> None:
    world.create("orders")
    world.disk.fail("write", errno.EIO, suffix=".log")
    for _ in range(2):  # the partition stays offline
        with pytest.raises(KafkaError) as error:
            world.run(log_of(world).append(0, make_batch()))
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
