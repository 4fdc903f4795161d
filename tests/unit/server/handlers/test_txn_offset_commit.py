from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.protocol.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from lakelog.protocol.transactions import AddOffsetsToTxnRequest, EndTxnRequest
from lakelog.server.handlers import add_offsets_to_txn, end_txn, offset_fetch
from lakelog.server.handlers.txn_offset_commit import handle
from memory_broker import MemoryBroker
from memory_clients import GROUP, Producer, init_producer
from storage_kit import NOW

E = ErrorCode


def codes(
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
    response = world.ask(handle, request, version)
    return [each.error_code for found in response.topics for each in found.partitions]


def add_offsets(world: MemoryBroker, producer: Producer) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=GROUP,
    )
    assert not world.ask(add_offsets_to_txn.handle, request, 4).error_code


def committed(world: MemoryBroker) -> list[int]:
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    (group,) = world.ask(offset_fetch.handle, OffsetFetchRequest(groups=groups), 9).groups
    return [each.committed_offset for topic in group.topics for each in topic.partitions]


def test_offsets_are_committed_with_their_transaction(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    assert codes(coordinators, producer, 0) == [E.NONE]
    assert committed(coordinators) == []
    request = EndTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    assert not coordinators.ask(end_txn.handle, request, 5).error_code
    coordinators.pass_time(1)
    assert committed(coordinators) == [7]


def test_before_version_5_the_client_adds_the_group_first(coordinators: MemoryBroker) -> None:
    """KAFKA-15449: otherwise the offsets would hang."""
    producer = init_producer(coordinators)
    assert codes(coordinators, producer, 0, version=3) == [E.INVALID_TXN_STATE]
    assert codes(coordinators, producer, 0, version=4) == [E.TRANSACTION_ABORTABLE]
    add_offsets(coordinators, producer)
    assert codes(coordinators, producer, 0, version=3) == [E.NONE]


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
    assert codes(coordinators, producer, 0) == [E.COORDINATOR_NOT_AVAILABLE]
    monkeypatch.setattr(broker.verification, "verify", verify)
    assert codes(coordinators, producer, 0) == [E.NONE]


def test_unknown_partitions_do_not_keep_the_others_from_their_commit(
    coordinators: MemoryBroker,
) -> None:
    producer = init_producer(coordinators)
    assert codes(coordinators, producer, 0, 9) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]


def test_if_all_are_unknown_the_transaction_is_not_checked(coordinators: MemoryBroker) -> None:
    stranger = Producer(99, 0)
    assert codes(coordinators, stranger, 0, topic="gone") == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes(coordinators, stranger, 0) == [E.INVALID_PRODUCER_ID_MAPPING]


def test_version_6_names_topics_by_id(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    topic_id = coordinators.broker.topics.topic_id("orders") or b""
    assert codes(coordinators, producer, 0, topic_id=topic_id, version=6) == [E.NONE]
    assert codes(coordinators, producer, 0, topic_id=b"\x11" * 16, version=6) == [
        E.UNKNOWN_TOPIC_ID
    ]


def test_a_fenced_producer_and_an_empty_group_are_rejected(coordinators: MemoryBroker) -> None:
    fenced = init_producer(coordinators)
    producer = init_producer(coordinators)
    assert codes(coordinators, fenced, 0) == [E.INVALID_PRODUCER_EPOCH]
    assert codes(coordinators, producer, 0, group="") == [E.INVALID_GROUP_ID]


def test_without_its_partition_a_group_has_no_coordinator(world: MemoryBroker) -> None:
    world.create("orders")
    assert codes(world, Producer(7, 0), 0) == [E.COORDINATOR_NOT_AVAILABLE]
