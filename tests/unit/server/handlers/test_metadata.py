from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerFenced, PartitionRecord
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
    TopicRequest,
)
from lakelog.server.handlers.metadata import describe_topic_partitions, metadata
from memory_broker import LOCAL, MemoryBroker
from memory_metadata import FAILED_CHANGES

E = ErrorCode
UNKNOWN_ID = b"\x11" * 16


def ask(
    world: MemoryBroker,
    *names: str | None,
    topic_id: bytes = bytes(16),
    version: int = 13,
    create: bool = False,
) -> list[MetadataResponseTopic]:
    topics = [MetadataRequestTopic(name=name, topic_id=topic_id) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
    return all_of(world, request, version).topics


def all_of(world: MemoryBroker, request: MetadataRequest, version: int = 13) -> MetadataResponse:
    return world.ask(metadata, request, version)


def test_a_topic_has_its_partitions_in_order(world: MemoryBroker) -> None:
    topic_id = world.create("orders", 3)
    (topic,) = ask(world, "orders")
    assert (topic.error_code, topic.topic_id, topic.is_internal) == (E.NONE, topic_id, False)
    assert [each.partition_index for each in topic.partitions] == [0, 1, 2]
    leader = world.partition("orders").leader_epoch
    assert {(each.leader_id, each.leader_epoch) for each in topic.partitions} == {(1, leader)}
    assert {tuple(each.isr_nodes) for each in topic.partitions} == {(1,)}


def test_the_broker_is_reached_at_the_address_of_the_connection(world: MemoryBroker) -> None:
    response = all_of(world, MetadataRequest(topics=[]))
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [(1, *LOCAL)]
    assert (response.controller_id, response.cluster_id) == (1, world.broker.cluster_id)
    assert response.topics == []


def test_a_broker_of_an_earlier_version_gets_no_lease(world: MemoryBroker) -> None:
    """It takes an answer that names the controller for one."""
    request = MetadataRequest(topics=[], lease_of=2)
    assert world.ask(metadata, request, 13, sender=2).controller_id == -1
    assert world.broker.controller.lease_grants.divide({2: 7}) == ({2: 7}, None)


def test_all_topics_are_in_the_order_of_their_names(world: MemoryBroker) -> None:
    names = [f"topic-{number}" for number in (4, 1, 7, 3, 0, 6, 2, 5)]
    for name in names:
        world.create(name)
    response = all_of(world, MetadataRequest(topics=None))
    assert [topic.name for topic in response.topics] == sorted(names)


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (13, None)])
def test_all_topics_are_an_empty_list_in_version_0_and_null_since(
    world: MemoryBroker, version: int, topics: list[MetadataRequestTopic] | None
) -> None:
    world.create("orders")
    world.create("clicks")
    for _ in range(2):  # the second response is the kept one
        found = all_of(world, MetadataRequest(topics=topics), version).topics
        assert {each.name for each in found} == {"orders", "clicks"}
    world.create("late")
    assert len(all_of(world, MetadataRequest(topics=topics), version).topics) == 3


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("name", ["", "a b", "n" * 250])
def test_a_name_that_no_topic_may_have_does_not_fail_the_others(
    world: MemoryBroker, name: str, create: bool
) -> None:
    world.create("orders")
    codes = [each.error_code for each in ask(world, name, "orders", create=create)]
    assert codes == [E.INVALID_TOPIC_EXCEPTION, E.NONE]


def test_a_topic_that_does_not_exist_is_unknown(world: MemoryBroker) -> None:
    assert [each.error_code for each in ask(world, "gone")] == [E.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_is_created_if_request_and_broker_allow_it(world: MemoryBroker) -> None:
    (topic,) = ask(world, "orders", create=True)
    assert (topic.error_code, len(topic.partitions)) == (E.NONE, 1)
    assert world.partition("orders").is_online
    with MemoryBroker(auto_create_topics_enable="false") as other:
        (topic,) = ask(other, "orders", create=True)
        assert topic.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_a_topic_that_could_not_be_created_has_the_reason(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.create("orders")
    world.metadata.fault = fault
    assert [each.error_code for each in ask(world, "new", "orders", create=True)] == [code, 0]


def test_from_version_12_on_a_topic_is_found_by_id(world: MemoryBroker) -> None:
    topic_id = world.create("orders")
    (found,) = ask(world, None, topic_id=topic_id, version=12)
    assert (found.error_code, found.name) == (E.NONE, "orders")
    (missing,) = ask(world, None, topic_id=UNKNOWN_ID)
    assert (missing.error_code, missing.name) == (E.UNKNOWN_TOPIC_ID, None)
    (early,) = ask(world, "orders", topic_id=topic_id, version=11)
    assert early.error_code == E.INVALID_REQUEST


def test_a_topic_without_name_and_id_is_an_error(world: MemoryBroker) -> None:
    assert [each.error_code for each in ask(world, None)] == [E.INVALID_REQUEST]


def test_operations_come_on_request_and_not_with_an_error(world: MemoryBroker) -> None:
    world.create("orders")
    topics = [MetadataRequestTopic(name=name) for name in ("orders", "gone")]
    request = MetadataRequest(
        topics=topics,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
        allow_auto_topic_creation=False,
    )
    response = all_of(world, request, 10)
    found, missing = response.topics
    assert found.topic_authorized_operations > 0 > missing.topic_authorized_operations
    assert response.cluster_authorized_operations > 0
    assert ask(world, "orders")[0].topic_authorized_operations < 0


def test_a_topic_that_is_named_twice_is_described_once(world: MemoryBroker) -> None:
    world.create("orders")
    assert len(ask(world, "orders", "orders")) == 1


def test_a_coordinator_s_topic_is_internal(world: MemoryBroker) -> None:
    world.run(world.broker.topics.ensure_group_topic())
    assert ask(world, "__consumer_offsets")[0].is_internal


@pytest.mark.parametrize("topics", [None, [MetadataRequestTopic(name="orders")]])
def test_an_answer_waits_until_a_lost_broker_is_fenced_and_lists_it_still(
    world: MemoryBroker, topics: list[MetadataRequestTopic] | None
) -> None:
    world.create("orders", 1)
    world.register(2, "h", 9093)
    failed_brokers = world.broker.failed_brokers
    failed_brokers.follow(world.broker.image)
    failed_brokers.add(2)
    asked = world.start(metadata, MetadataRequest(topics=topics), 13)
    assert not asked.is_answered
    fence = BrokerFenced(2, 1)
    world.run(world.broker.metadata.submit(lambda image: Plan((fence,), None)))
    failed_brokers.follow(world.broker.image)
    response: MetadataResponse = asked.response()
    assert [each.name for each in response.topics] == ["orders"]
    assert [each.node_id for each in response.brokers] == [1, 2]
    failed_brokers.close()
    response = all_of(world, MetadataRequest(topics=topics))
    assert [each.node_id for each in response.brokers] == [1]


def test_replicas_on_a_fenced_broker_are_offline(world: MemoryBroker) -> None:
    world.create("orders", 2)
    world.register(2, "h", 9093)
    world.change_leader("orders", 2, (2,))
    world.change_leader("orders", 1, (1, 2), index=1)
    fence = BrokerFenced(2, 1)
    world.run(world.broker.metadata.submit(lambda image: Plan((fence,), None)))
    (topic,) = ask(world, "orders")
    lost, led = topic.partitions
    assert (lost.error_code, lost.leader_id, lost.offline_replicas) == (
        E.LEADER_NOT_AVAILABLE,
        -1,
        [2],
    )
    assert (led.error_code, led.leader_id, led.offline_replicas) == (E.NONE, 1, [2])
    assert topic.error_code == E.NONE


@pytest.mark.parametrize("named", [True, False])
def test_a_partition_whose_log_is_offline_has_no_leader(world: MemoryBroker, named: bool) -> None:
    world.create("orders", 2)
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name="orders")] if named else None)
    all_of(world, wanted)  # a response that is kept
    world.partition("orders").take_offline("a bad sector")
    ((failed, whole),) = (topic.partitions for topic in all_of(world, wanted).topics)
    assert (failed.error_code, failed.leader_id) == (E.LEADER_NOT_AVAILABLE, -1)
    assert (failed.offline_replicas, failed.replica_nodes) == ([1], [1])
    assert (whole.error_code, whole.leader_id, whole.offline_replicas) == (E.NONE, 1, [])


def ask_page(
    world: MemoryBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return world.ask(describe_topic_partitions, request, 0)


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
    first = ask_page(world, limit=3)
    assert (page(first), following(first)) == ([("a", [0, 1]), ("b", [0])], ("b", 1))
    second = ask_page(world, limit=3, cursor=("b", 1))
    assert (page(second), following(second)) == ([("b", [1, 2])], None)


def test_a_page_may_end_between_two_topics(world: MemoryBroker) -> None:
    world.create("a", 2)
    world.create("b")
    assert following(ask_page(world, limit=2)) == ("b", 0)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_holds_one_partition_at_least(world: MemoryBroker, limit: int) -> None:
    world.create("a", 2)
    response = ask_page(world, "a", limit=limit)
    assert (page(response), following(response)) == ([("a", [0])], ("a", 1))


def test_the_broker_limits_pages_too() -> None:
    with MemoryBroker(max_request_partition_size_limit="2") as world:
        world.create("a", 3)
        assert following(ask_page(world, "a")) == ("a", 2)


def test_each_topic_has_its_own_error(world: MemoryBroker) -> None:
    world.create("orders")
    codes = {
        topic.name: topic.error_code for topic in ask_page(world, "orders", "gone", "a b").topics
    }
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
    response = ask_page(world, "orders", cursor=cursor)
    assert [topic.error_code for topic in response.topics] == [E.INVALID_REQUEST]


def test_a_cursor_beyond_the_partitions_of_a_topic_finds_no_partition(world: MemoryBroker) -> None:
    world.create("orders", 2)
    response = ask_page(world, "orders", cursor=("orders", 99))
    assert (page(response), following(response)) == ([("orders", [])], None)


def test_a_partition_has_its_leader_and_replicas(world: MemoryBroker) -> None:
    topic_id = world.create("orders")
    (topic,) = ask_page(world, "orders").topics
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
    (topic,) = ask_page(world, "orders").topics
    (found,) = topic.partitions
    assert (found.isr_nodes, found.eligible_leader_replicas, found.last_known_elr) == ([], [2], [3])
    assert (found.error_code, found.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_a_page_shows_replicas_on_a_fenced_broker_as_offline(world: MemoryBroker) -> None:
    world.create("orders")
    world.register(2, "h", 9093)
    world.change_leader("orders", 1, (1, 2))
    fence = BrokerFenced(2, 1)
    world.run(world.broker.metadata.submit(lambda image: Plan((fence,), None)))
    (topic,) = ask_page(world, "orders").topics
    assert [each.offline_replicas for each in topic.partitions] == [[2]]
