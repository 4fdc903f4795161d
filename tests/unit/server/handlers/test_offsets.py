from __future__ import annotations

import errno
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from lakelog.protocol.transactions import AddOffsetsToTxnRequest, EndTxnRequest
from lakelog.server.handlers.offsets import (
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
)
from lakelog.server.handlers.transactions import add_offsets_to_txn, end_txn
from memory_broker import MemoryBroker
from memory_clients import GROUP, Producer, commit, init_producer, join_and_sync
from storage_kit import NOW

E = ErrorCode


def codes(
    world: MemoryBroker,
    *indexes: int,
    topic: str = "orders",
    topic_id: bytes = bytes(16),
    member_id: str = "",
    generation: int = -1,
    version: int = 9,
    metadata: str = "",
) -> list[int]:
    entries = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=7, committed_metadata=metadata
        )
        for index in indexes
    ]
    topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=entries)]
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=topics,
    )
    response = world.ask(offset_commit, request, version)
    return [each.error_code for found in response.topics for each in found.partitions]


def test_a_client_outside_of_a_group_commits(coordinators: MemoryBroker) -> None:
    assert codes(coordinators, 0, 1) == [E.NONE, E.NONE]


def test_each_partition_has_its_result(coordinators: MemoryBroker) -> None:
    large = "x" * 5000
    assert codes(coordinators, 0, metadata=large) == [E.OFFSET_METADATA_TOO_LARGE]
    assert codes(coordinators, 0) == [E.NONE]


def test_members_commit_in_their_generation(coordinators: MemoryBroker) -> None:
    joined = join_and_sync(coordinators)
    member, generation = joined.member_id, joined.generation_id
    assert codes(coordinators, 0, member_id=member, generation=generation) == [E.NONE]
    assert codes(coordinators, 0, member_id="other", generation=generation) == [E.UNKNOWN_MEMBER_ID]
    assert codes(coordinators, 0, member_id=member, generation=99) == [E.ILLEGAL_GENERATION]
    assert commit(coordinators, 5) == E.UNKNOWN_MEMBER_ID, "the group has members"


def test_version_10_names_topics_by_id(coordinators: MemoryBroker) -> None:
    topic_id = coordinators.broker.topics.topic_id("orders") or b""
    assert codes(coordinators, 0, topic_id=topic_id, version=10) == [E.NONE]
    assert codes(coordinators, 0, topic_id=b"\x11" * 16, version=10) == [E.UNKNOWN_TOPIC_ID]


def test_without_the_group_s_partition_there_is_no_coordinator(world: MemoryBroker) -> None:
    assert codes(world, 0) == [E.NOT_COORDINATOR]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_offset_that_was_not_written_is_an_error(coordinators: MemoryBroker, code: int) -> None:
    coordinators.disk.fail("write", code, suffix=".log")
    assert codes(coordinators, 0) == [E.NOT_COORDINATOR]


@pytest.mark.parametrize("version", [1, 7])
def test_before_version_8_a_request_has_one_group(coordinators: MemoryBroker, version: int) -> None:
    commit(coordinators, 5)
    topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
    response = coordinators.ask(
        offset_fetch, OffsetFetchRequest(group_id=GROUP, topics=topics), version
    )
    (topic,) = response.topics
    assert [(each.committed_offset, each.error_code) for each in topic.partitions] == [
        (5, E.NONE),
        (-1, E.NONE),
    ]


def test_from_version_8_on_each_group_has_its_offsets(coordinators: MemoryBroker) -> None:
    commit(coordinators, 5, "a")
    commit(coordinators, 6, "b", index=1)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "b", "c")]
    response = coordinators.ask(offset_fetch, OffsetFetchRequest(groups=groups), 9)
    found = {
        group.group_id: [
            (topic.name, each.partition_index, each.committed_offset)
            for topic in group.topics
            for each in topic.partitions
        ]
        for group in response.groups
    }
    assert found == {"a": [("orders", 0, 5)], "b": [("orders", 1, 6)], "c": []}


def test_version_10_fetches_topics_by_id(coordinators: MemoryBroker) -> None:
    commit(coordinators, 5)
    topic_id = coordinators.broker.topics.topic_id("orders") or b""
    asked = [
        OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0])
        for each in (topic_id, b"\x11" * 16)
    ]
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=asked)]
    (group,) = coordinators.ask(offset_fetch, OffsetFetchRequest(groups=groups), 10).groups
    assert {
        topic.topic_id: (each.committed_offset, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    } == {topic_id: (5, E.NONE), b"\x11" * 16: (-1, E.UNKNOWN_TOPIC_ID)}


@pytest.mark.parametrize("version", [7, 8])
def test_offsets_of_a_group_without_its_partition_have_no_coordinator(
    world: MemoryBroker, version: int
) -> None:
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    request = OffsetFetchRequest(group_id=GROUP, topics=None)
    if version >= 8:
        request = OffsetFetchRequest(groups=groups)
    response = world.ask(offset_fetch, request, version)
    codes = [group.error_code for group in response.groups] or [response.error_code]
    assert codes == [E.NOT_COORDINATOR]


def ask(world: MemoryBroker, *partitions: tuple[str, int]) -> OffsetDeleteResponse:
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
        )
        for name, index in partitions
    ]
    return world.ask(offset_delete, OffsetDeleteRequest(group_id=GROUP, topics=topics), 0)


def test_each_deleted_partition_has_its_result(coordinators: MemoryBroker) -> None:
    commit(coordinators, 5)
    response = ask(coordinators, ("orders", 0), ("orders", 1), ("gone", 0))
    assert response.error_code == E.NONE
    codes = [each.error_code for topic in response.topics for each in topic.partitions]
    assert codes == [E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_missing_group_is_an_error_of_the_request(coordinators: MemoryBroker) -> None:
    response = ask(coordinators, ("orders", 0))
    assert (response.error_code, response.topics) == (E.GROUP_ID_NOT_FOUND, [])


def test_without_the_group_s_partition_nothing_is_deleted(world: MemoryBroker) -> None:
    assert ask(world, ("orders", 0)).error_code == E.NOT_COORDINATOR


def transactional_codes(
    world: MemoryBroker,
    producer: Producer,
    *indexes: int,
    topic: str = "orders",
    topic_id: bytes = bytes(16),
    group: str = GROUP,
    version: int = 5,
) -> list[int]:
    entries = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=7)
        for index in indexes
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="id",
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=entries)],
    )
    response = world.ask(txn_offset_commit, request, version)
    return [each.error_code for found in response.topics for each in found.partitions]


def add_offsets(world: MemoryBroker, producer: Producer) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=GROUP,
    )
    assert not world.ask(add_offsets_to_txn, request, 4).error_code


def committed(world: MemoryBroker) -> list[int]:
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    (group,) = world.ask(offset_fetch, OffsetFetchRequest(groups=groups), 9).groups
    return [each.committed_offset for topic in group.topics for each in topic.partitions]


def test_offsets_are_committed_with_their_transaction(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    assert transactional_codes(coordinators, producer, 0) == [E.NONE]
    assert committed(coordinators) == []
    request = EndTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    assert not coordinators.ask(end_txn, request, 5).error_code
    coordinators.pass_time(1)
    assert committed(coordinators) == [7]


def test_before_version_5_the_client_adds_the_group_first(coordinators: MemoryBroker) -> None:
    """KAFKA-15449: otherwise the offsets would hang."""
    producer = init_producer(coordinators)
    assert transactional_codes(coordinators, producer, 0, version=3) == [E.INVALID_TXN_STATE]
    assert transactional_codes(coordinators, producer, 0, version=4) == [E.TRANSACTION_ABORTABLE]
    add_offsets(coordinators, producer)
    assert transactional_codes(coordinators, producer, 0, version=3) == [E.NONE]


def test_a_commit_whose_verification_is_voided_is_repeated(
    coordinators: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A marker without transaction version came while the transaction's coordinator was asked."""
    producer, broker = init_producer(coordinators), coordinators.broker
    verify = broker.verification.verify

    async def verify_slowly(*arguments: Any, **named: Any) -> Any:
        answer = await verify(*arguments, **named)
        broker.partitions.leader(GROUP_TOPIC, broker.groups.partition_for(GROUP)).append_marker(
            *producer, False, 0, NOW, transaction_version=0
        )
        return answer

    monkeypatch.setattr(broker.verification, "verify", verify_slowly)
    assert transactional_codes(coordinators, producer, 0) == [E.COORDINATOR_NOT_AVAILABLE]
    monkeypatch.setattr(broker.verification, "verify", verify)
    assert transactional_codes(coordinators, producer, 0) == [E.NONE]


def test_unknown_partitions_do_not_keep_the_others_from_their_commit(
    coordinators: MemoryBroker,
) -> None:
    producer = init_producer(coordinators)
    assert transactional_codes(coordinators, producer, 0, 9) == [
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_if_all_are_unknown_the_transaction_is_not_checked(coordinators: MemoryBroker) -> None:
    stranger = Producer(99, 0)
    assert transactional_codes(coordinators, stranger, 0, topic="gone") == [
        E.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert transactional_codes(coordinators, stranger, 0) == [E.INVALID_PRODUCER_ID_MAPPING]


def test_version_6_names_topics_by_id(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    topic_id = coordinators.broker.topics.topic_id("orders") or b""
    assert transactional_codes(coordinators, producer, 0, topic_id=topic_id, version=6) == [E.NONE]
    assert transactional_codes(coordinators, producer, 0, topic_id=b"\x11" * 16, version=6) == [
        E.UNKNOWN_TOPIC_ID
    ]


def test_a_fenced_producer_and_an_empty_group_are_rejected(coordinators: MemoryBroker) -> None:
    fenced = init_producer(coordinators)
    producer = init_producer(coordinators)
    assert transactional_codes(coordinators, fenced, 0) == [E.INVALID_PRODUCER_EPOCH]
    assert transactional_codes(coordinators, producer, 0, group="") == [E.INVALID_GROUP_ID]


def test_without_its_partition_a_group_has_no_coordinator(world: MemoryBroker) -> None:
    world.create("orders")
    assert transactional_codes(world, Producer(7, 0), 0) == [E.COORDINATOR_NOT_AVAILABLE]
