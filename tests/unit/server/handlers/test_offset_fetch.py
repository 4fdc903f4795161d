from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from lakelog.server.handlers.offset_fetch import handle
from memory_broker import MemoryBroker
from memory_clients import GROUP, commit

E = ErrorCode


@pytest.mark.parametrize("version", [1, 7])
def test_before_version_8_a_request_has_one_group(coordinators: MemoryBroker, version: int) -> None:
    commit(coordinators, 5)
    topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
    response = coordinators.ask(handle, OffsetFetchRequest(group_id=GROUP, topics=topics), version)
    (topic,) = response.topics
    assert [(each.committed_offset, each.error_code) for each in topic.partitions] == [
        (5, E.NONE),
        (-1, E.NONE),
    ]


def test_from_version_8_on_each_group_has_its_offsets(coordinators: MemoryBroker) -> None:
    commit(coordinators, 5, "a")
    commit(coordinators, 6, "b", index=1)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "b", "c")]
    response = coordinators.ask(handle, OffsetFetchRequest(groups=groups), 9)
    found = {
        group.group_id: [
            (topic.name, each.partition_index, each.committed_offset)
            for topic in group.topics
            for each in topic.partitions
        ]
        for group in response.groups
    }
    assert found == {"a": [("orders", 0, 5)], "b": [("orders", 1, 6)], "c": []}


def test_version_10_names_topics_by_id(coordinators: MemoryBroker) -> None:
    commit(coordinators, 5)
    topic_id = coordinators.broker.topics.topic_id("orders") or b""
    asked = [
        OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0])
        for each in (topic_id, b"\x11" * 16)
    ]
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=asked)]
    (group,) = coordinators.ask(handle, OffsetFetchRequest(groups=groups), 10).groups
    assert {
        topic.topic_id: (each.committed_offset, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    } == {topic_id: (5, E.NONE), b"\x11" * 16: (-1, E.UNKNOWN_TOPIC_ID)}


@pytest.mark.parametrize("version", [7, 8])
def test_without_its_partition_a_group_has_no_coordinator(
    world: MemoryBroker, version: int
) -> None:
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    request = OffsetFetchRequest(group_id=GROUP, topics=None)
    if version >= 8:
        request = OffsetFetchRequest(groups=groups)
    response = world.ask(handle, request, version)
    codes = [group.error_code for group in response.groups] or [response.error_code]
    assert codes == [E.NOT_COORDINATOR]
