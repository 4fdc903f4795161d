from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.fetch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lakelog.server.handlers.offset_for_leader_epoch import handle
from memory_broker import MemoryBroker

E = ErrorCode


def ask(
    world: MemoryBroker,
    leader_epoch: int,
    *,
    current: int = -1,
    topic: str = "orders",
    index: int = 0,
    version: int = 4,
) -> EpochEndOffset:
    entry = OffsetForLeaderPartition(
        partition=index, current_leader_epoch=current, leader_epoch=leader_epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1 if version >= 3 else -2,
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[entry])],
    )
    return world.ask(handle, request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 4])
def test_an_epoch_ends_where_the_next_begins(world: MemoryBroker, version: int) -> None:
    world.create("orders")
    partition = world.partition("orders")
    world.append("orders", count=3)
    first = partition.leader_epoch
    partition.leader_epoch += 2
    world.append("orders", count=2)
    before = ask(world, first, version=version)
    assert (before.leader_epoch, before.end_offset) == (first, 3)
    between = ask(world, first + 1, version=version)
    assert (between.leader_epoch, between.end_offset) == (first, 3)
    latest = ask(world, first + 2, version=version)
    assert (latest.leader_epoch, latest.end_offset) == (first + 2, 5)


def test_an_unknown_epoch_has_no_end(world: MemoryBroker) -> None:
    world.create("orders")
    world.append("orders")
    found = ask(world, world.partition("orders").leader_epoch + 7)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (E.NONE, -1, -1)


@pytest.mark.parametrize(("topic", "index"), [("gone", 0), ("orders", 9)])
def test_an_unknown_partition_is_an_error(world: MemoryBroker, topic: str, index: int) -> None:
    world.create("orders")
    found = ask(world, 0, topic=topic, index=index)
    assert (found.error_code, found.partition) == (E.UNKNOWN_TOPIC_OR_PARTITION, index)


def test_metadata_of_another_leader_is_fenced(world: MemoryBroker) -> None:
    world.create("orders")
    partition = world.partition("orders")
    partition.leader_epoch = 5
    assert ask(world, 0, current=4).error_code == E.FENCED_LEADER_EPOCH
    assert ask(world, 0, current=6).error_code == E.UNKNOWN_LEADER_EPOCH
    assert ask(world, 0, current=5).error_code == E.NONE
