"""Members of groups and transactional producers of a broker in memory."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from lakelog.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from lakelog.server.handlers.groups import join_group, sync_group
from lakelog.server.handlers.offsets import offset_commit, offset_fetch
from lakelog.server.handlers.transactions import add_partitions_to_txn, init_producer_id
from memory_broker import MemoryBroker

GROUP = "readers"


class Producer(NamedTuple):
    """The identity of a transactional producer."""

    producer_id: int
    epoch: int


def join_request(member_id: str = "", group: str = GROUP) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def join(world: MemoryBroker, group: str = GROUP) -> JoinGroupResponse:
    """Return the response to the only member of a new generation, which is not assigned yet."""
    given = world.ask(join_group, join_request(group=group), 9)
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = world.ask(join_group, join_request(given.member_id, group), 9)
    assert not joined.error_code
    return joined


def join_and_sync(world: MemoryBroker, group: str = GROUP) -> JoinGroupResponse:
    """Return the response to the only member of a group, which is stable then."""
    joined = join(world, group)
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
    )
    assert world.ask(sync_group, request, 5).assignment == b"mine"
    return joined


def commit_request(offset: int, group: str = GROUP, index: int = 0) -> OffsetCommitRequest:
    """Return the commit of an offset of `orders` outside of the group."""
    entry = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="orders", partitions=[entry])
    return OffsetCommitRequest(group_id=group, topics=[topic])


def commit(world: MemoryBroker, offset: int, group: str = GROUP, index: int = 0) -> int:
    """Commit an offset of `orders` outside of the group; return the error code."""
    response = world.ask(offset_commit, commit_request(offset, group, index), 8)
    return response.topics[0].partitions[0].error_code


def committed(world: MemoryBroker, group: str = GROUP, index: int = 0) -> int:
    """Return the committed offset of `orders`, -1 without one."""
    topic = OffsetFetchRequestTopics(name="orders", partition_indexes=[index])
    wanted = OffsetFetchRequestGroup(group_id=group, topics=[topic])
    response = world.ask(offset_fetch, OffsetFetchRequest(groups=[wanted]), 9)
    (found,) = response.groups
    assert not found.error_code
    return found.topics[0].partitions[0].committed_offset


def init_producer(world: MemoryBroker, transactional_id: str = "id") -> Producer:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    response = world.ask(init_producer_id, request, 5)
    assert not response.error_code
    return Producer(response.producer_id, response.producer_epoch)


def add_partition(
    world: MemoryBroker, producer: Producer, index: int = 0, transactional_id: str = "id"
) -> None:
    """Begin a transaction with a partition of `orders`, or add it to the open one."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[index])],
    )
    (topic,) = world.ask(add_partitions_to_txn, request, 3).results_by_topic_v3_and_below
    assert [each.partition_error_code for each in topic.results_by_partition] == [0]
