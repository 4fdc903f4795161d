from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator_members import GROUP, commit_codes, committed, form, heartbeat
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.protocol.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

ORDERS = ("orders", 0)


@in_virtual_time()
async def test_a_commit_renews_the_session_of_its_member(setup: Setup) -> None:
    (member,) = await form(setup, 1, session_timeout_ms=10_000)
    for offset in range(3):
        await asyncio.sleep(6)
        assert await commit_codes(setup, {ORDERS: offset}, member) == [0]
    assert await committed(setup) == {ORDERS: 2}
    assert await heartbeat(setup, member) == 0


async def _fetch_all(setup: Setup, version: int, *groups: str) -> Any:
    wanted = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    request = OffsetFetchRequest(groups=wanted, group_id=groups[0], topics=None)
    return await setup.coordinator.offset_fetch(request, version)


@pytest.mark.parametrize("version", range(1, 8))
def test_before_v8_offset_fetch_has_one_group(version: int) -> None:
    async def scenario(setup: Setup) -> None:
        await commit_codes(setup, {ORDERS: 7}, metadata="m")
        topics = [
            OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1]),
            OffsetFetchRequestTopic(name="nowhere", partition_indexes=[0]),
        ]
        request = OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=True)
        response = await setup.coordinator.offset_fetch(request, version)
        assert response.error_code == 0
        found = [
            (topic.name, each.partition_index, each.committed_offset, each.error_code)
            for topic in response.topics
            for each in topic.partitions
        ]
        assert found == [("orders", 0, 7, 0), ("orders", 1, -1, 0), ("nowhere", 0, -1, 0)]
        request.group_id = "unknown"
        response = await setup.coordinator.offset_fetch(request, version)
        offsets = {each.committed_offset for topic in response.topics for each in topic.partitions}
        assert (response.error_code, offsets) == (0, {-1})

    in_virtual_time()(scenario)()


@pytest.mark.parametrize("version", range(2, 10))
def test_every_offset_of_a_group(version: int) -> None:
    async def scenario(setup: Setup) -> None:
        await commit_codes(setup, {ORDERS: 7, ("orders", 3): 8, ("clicks", 1): 9})
        response = await _fetch_all(setup, version, GROUP)
        answer = response if version < 8 else response.groups[0]
        assert answer.error_code == 0
        assert {
            (topic.name, each.partition_index): each.committed_offset
            for topic in answer.topics
            for each in topic.partitions
        } == {ORDERS: 7, ("orders", 3): 8, ("clicks", 1): 9}

    in_virtual_time()(scenario)()


@in_virtual_time()
async def test_several_groups_at_once(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7})
    await commit_codes(setup, {ORDERS: 8}, group="other")
    response = await _fetch_all(setup, 9, GROUP, "unknown", "other")
    found = [
        (group.group_id, group.error_code, [topic.partitions for topic in group.topics])
        for group in response.groups
    ]
    assert [(group_id, code) for group_id, code, _ in found] == [
        (GROUP, 0),
        ("unknown", 0),
        ("other", 0),
    ]
    offsets = [[each.committed_offset for part in parts for each in part] for *_, parts in found]
    assert offsets == [[7], [], [8]]


@in_virtual_time()
async def test_v10_asks_and_is_answered_by_topic_id(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7})
    topics = [
        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
        for topic_id in (b"o" * 16, b"x" * 16)
    ]
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
    response = await setup.coordinator.offset_fetch(OffsetFetchRequest(groups=[group]), 10)
    found = [
        (each.topic_id, each.partitions[0].committed_offset, each.partitions[0].error_code)
        for each in response.groups[0].topics
    ]
    assert found == [(b"o" * 16, 7, 0), (b"x" * 16, -1, ErrorCode.UNKNOWN_TOPIC_ID)]
    everything = await _fetch_all(setup, 10, GROUP)
    assert [each.topic_id for each in everything.groups[0].topics] == [b"o" * 16]


@pytest.mark.parametrize("version", [1, 2, 5, 7, 9])
def test_where_there_are_no_offsets_to_ask(version: int) -> None:
    """Before version 8 each partition has the error too, for clients that look nowhere else."""

    async def scenario(setup: Setup) -> None:
        topic = OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])
        request = OffsetFetchRequest(
            group_id=GROUP,
            topics=[topic],
            groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)],
        )
        setup.coordinator.close()
        setup.log.read_barrier = asyncio.Event()
        for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            response = await setup.coordinator.offset_fetch(request, version)
            answer = response if version < 8 else response.groups[0]
            assert answer.error_code == code
            found = [
                (topic.name, each.partition_index, each.committed_offset, each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            ]
            partitions = [("orders", 0, -1, code), ("orders", 1, -1, code)]
            assert found == (partitions if version < 8 else [])
            loading = asyncio.ensure_future(setup.coordinator.load_partition(0, 0))
            await asyncio.sleep(0.1)
        setup.log.read_barrier.set()
        await loading

    in_virtual_time()(scenario)()
