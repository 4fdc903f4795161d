from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.producers import DescribeProducersRequest, PartitionResponse, TopicRequest
from lakelog.server.handlers.describe_producers import handle
from memory_broker import MemoryBroker
from storage_kit import append_in_transaction

E = ErrorCode


def ask(world: MemoryBroker, topic: str, *indexes: int, times: int = 1) -> list[PartitionResponse]:
    wanted = [TopicRequest(name=topic, partition_indexes=list(indexes))] * times
    (found,) = world.ask(handle, DescribeProducersRequest(topics=wanted), 0).topics
    assert found.name == topic
    return found.partitions


def test_a_producer_has_its_last_batch_and_its_transaction(world: MemoryBroker) -> None:
    world.create("orders", 2)
    world.append("orders", producer=(6, 2, 0), count=3)
    now = world.clock.wall_ms()
    append_in_transaction(world.partition("orders").log, (7, 1, 0), now_ms=now)
    filled, empty = ask(world, "orders", 0, 1)
    idempotent, transactional = filled.active_producers
    assert (idempotent.producer_id, idempotent.producer_epoch, idempotent.last_sequence) == (
        6,
        2,
        2,
    )
    assert idempotent.current_txn_start_offset == -1
    assert (transactional.producer_id, transactional.current_txn_start_offset) == (7, 3)
    assert transactional.last_timestamp == now
    assert (empty.error_code, empty.active_producers) == (E.NONE, [])


def test_only_the_named_producers_are_returned(world: MemoryBroker) -> None:
    world.create("orders")
    for producer_id in (6, 7):
        world.append("orders", producer=(producer_id, 0, 0))
    wanted = DescribeProducersRequest(
        topics=[TopicRequest(name="orders", partition_indexes=[0])], producer_ids=[7, 9]
    )
    (topic,) = world.ask(handle, wanted, 0).topics
    assert [each.producer_id for each in topic.partitions[0].active_producers] == [7]


def test_a_partition_that_is_named_twice_has_one_result(world: MemoryBroker) -> None:
    world.create("orders")
    assert len(ask(world, "orders", 0, 0, times=2)) == 1


@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("gone", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 9, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", 0, E.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_an_unknown_partition_is_an_error(
    world: MemoryBroker, topic: str, index: int, code: ErrorCode
) -> None:
    world.create("orders")
    (found,) = ask(world, topic, index)
    assert (found.error_code, found.partition_index) == (code, index)
