from __future__ import annotations

import errno

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lakelog.server.handlers.offset_commit import handle
from memory_broker import MemoryBroker
from memory_clients import GROUP, commit, join_and_sync

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
    response = world.ask(handle, request, version)
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
