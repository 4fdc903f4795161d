from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from lakelog.server.handlers.offset_delete import handle
from memory_broker import MemoryBroker
from memory_clients import GROUP, commit

E = ErrorCode


def ask(world: MemoryBroker, *partitions: tuple[str, int]) -> OffsetDeleteResponse:
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
        )
        for name, index in partitions
    ]
    return world.ask(handle, OffsetDeleteRequest(group_id=GROUP, topics=topics), 0)


def test_each_partition_has_its_result(coordinators: MemoryBroker) -> None:
    commit(coordinators, 5)
    response = ask(coordinators, ("orders", 0), ("orders", 1), ("gone", 0))
    assert response.error_code == E.NONE
    codes = [each.error_code for topic in response.topics for each in topic.partitions]
    assert codes == [E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_missing_group_is_an_error_of_the_request(coordinators: MemoryBroker) -> None:
    response = ask(coordinators, ("orders", 0))
    assert (response.error_code, response.topics) == (E.GROUP_ID_NOT_FOUND, [])


def test_without_the_group_s_partition_there_is_no_coordinator(world: MemoryBroker) -> None:
    assert ask(world, ("orders", 0)).error_code == E.NOT_COORDINATOR
