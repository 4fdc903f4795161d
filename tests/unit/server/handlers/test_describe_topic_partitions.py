from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerFenced, PartitionRecord
from lakelog.protocol.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from lakelog.server.handlers.describe_topic_partitions import handle
from memory_broker import MemoryBroker

E = ErrorCode


def ask(
    world: MemoryBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return world.ask(handle, request, 0)


def page(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [
        (topic.name, [each.partition_index for each in topic.partitions])
        for topic in response.topics
    ]


def following(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_all_topics_are_read_in_pages(world: MemoryBroker) -> None:
    world.create("b", 3)
    world.create("a", 2)
    first = ask(world, limit=3)
    assert (page(first), following(first)) == ([("a", [0, 1]), ("b", [0])], ("b", 1))
    second = ask(world, limit=3, cursor=("b", 1))
    assert (page(second), following(second)) == ([("b", [1, 2])], None)


def test_a_page_may_end_between_two_topics(world: MemoryBroker) -> None:
    world.create("a", 2)
    world.create("b")
    assert following(ask(world, limit=2)) == ("b", 0)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_holds_one_partition_at_least(world: MemoryBroker, limit: int) -> None:
    world.create("a", 2)
    response = ask(world, "a", limit=limit)
    assert (page(response), following(response)) == ([("a", [0])], ("a", 1))


def test_the_broker_limits_pages_too() -> None:
    with MemoryBroker(max_request_partition_size_limit="2") as world:
        world.create("a", 3)
        assert following(ask(world, "a")) == ("a", 2)


def test_each_topic_has_its_own_error(world: MemoryBroker) -> None:
    world.create("orders")
    codes = {topic.name: topic.error_code for topic in ask(world, "orders", "gone", "a b").topics}
    assert codes == {
        "orders": E.NONE,
        "gone": E.UNKNOWN_TOPIC_OR_PARTITION,
        "a b": E.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize("cursor", [("orders", -1), ("elsewhere", 0)])
def test_a_cursor_outside_of_the_topics_is_an_error(
    world: MemoryBroker, cursor: tuple[str, int]
) -> None:
    world.create("orders")
    response = ask(world, "orders", cursor=cursor)
    assert [topic.error_code for topic in response.topics] == [E.INVALID_REQUEST]


def test_a_cursor_beyond_the_partitions_of_a_topic_finds_no_partition(world: MemoryBroker) -> None:
    world.create("orders", 2)
    response = ask(world, "orders", cursor=("orders", 99))
    assert (page(response), following(response)) == ([("orders", [])], None)


def test_a_partition_has_its_leader_and_replicas(world: MemoryBroker) -> None:
    topic_id = world.create("orders")
    (topic,) = ask(world, "orders").topics
    (partition,) = topic.partitions
    assert (topic.topic_id, topic.is_internal) == (topic_id, False)
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
    assert partition.leader_epoch == world.partition("orders").leader_epoch
    assert partition.eligible_leader_replicas == partition.last_known_elr == []
    assert (partition.error_code, partition.offline_replicas) == (ErrorCode.NONE, [])


def test_eligible_replicas_are_returned(world: MemoryBroker) -> None:
    topic_id = world.create("orders")
    state = PartitionRecord(topic_id, 0, (1, 2, 3), (), -1, 9, 9, (2,), (3,))
    world.run(world.broker.metadata.submit(lambda image: Plan((state,), None)))
    (topic,) = ask(world, "orders").topics
    (found,) = topic.partitions
    assert (found.isr_nodes, found.eligible_leader_replicas, found.last_known_elr) == ([], [2], [3])
    assert (found.error_code, found.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_replicas_on_a_fenced_broker_are_offline(world: MemoryBroker) -> None:
    world.create("orders")
    world.register(2, "h", 9093)
    world.change_leader("orders", 1, (1, 2))
    fence = BrokerFenced(2, 1)
    world.run(world.broker.metadata.submit(lambda image: Plan((fence,), None)))
    (topic,) = ask(world, "orders").topics
    assert [each.offline_replicas for each in topic.partitions] == [[2]]
