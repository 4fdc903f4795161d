from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator_members import GROUP, commit, commit_codes, committed, committed_one, form, join
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.protocol.join_group import JoinGroupResponse
from lakelog.protocol.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from lakelog.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
ORDERS = ("orders", 0)


def _by_id(topic_id: bytes, partition: int, offset: int) -> list[OffsetCommitRequestTopic]:
    each = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    return [OffsetCommitRequestTopic(topic_id=topic_id, partitions=[each])]


async def _fetch_all(setup: Setup, version: int, *groups: str) -> Any:
    wanted = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    request = OffsetFetchRequest(groups=wanted, group_id=groups[0], topics=None)
    return await setup.coordinator.offset_fetch(request, version)


# OffsetCommit


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_that_names_topics_commits(version: int) -> None:
    async def scenario(setup: Setup) -> None:
        (joined,) = await form(setup, 1)
        code = await commit_codes(setup, {ORDERS: 7}, joined, version=version, metadata="m")
        assert code == [0]
        one = await committed_one(setup, *ORDERS)
        assert (one.committed_offset, one.metadata, one.committed_leader_epoch) == (7, "m", 3)

    in_virtual_time()(scenario)()


@in_virtual_time()
async def test_offset_commit_checks_member_and_generation(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    for changes, code in (
        ({"generation_id_or_member_epoch": joined.generation_id + 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": joined.generation_id - 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, UNKNOWN_MEMBER),
        ({"member_id": ""}, UNKNOWN_MEMBER),
        ({"group_instance_id": "nobody"}, UNKNOWN_MEMBER),
    ):
        assert await commit_codes(setup, {ORDERS: 7}, joined, **changes) == [code], changes
    assert await commit_codes(setup, {ORDERS: 7}) == [UNKNOWN_MEMBER], "a simple consumer"
    assert await committed(setup) == {}
    assert await commit_codes(setup, {ORDERS: 7}, joined) == [0]


@in_virtual_time()
async def test_a_process_that_was_replaced_may_not_commit(setup: Setup) -> None:
    first = await join(setup, instance_id="a")
    again = await join(setup, instance_id="a")
    codes = await commit_codes(setup, {ORDERS: 7}, first, group_instance_id="a")
    assert codes == [ErrorCode.FENCED_INSTANCE_ID]
    assert again.generation_id >= first.generation_id


@in_virtual_time()
async def test_during_a_rebalance(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    again = join(setup, leader.member_id)
    assert await commit_codes(setup, {ORDERS: 7}, follower) == [0], (
        "a member may commit offsets of its previous partitions"
    )
    await join(setup, follower.member_id)
    joined = await again
    codes = await commit_codes(setup, {ORDERS: 8}, joined)
    assert codes == [ErrorCode.REBALANCE_IN_PROGRESS], "before the assignment"
    codes = await commit_codes(setup, {ORDERS: 8}, leader)
    assert codes == [ErrorCode.ILLEGAL_GENERATION]
    assert await committed(setup) == {ORDERS: 7}


@in_virtual_time()
async def test_a_simple_consumer_commits_to_a_group_without_members(setup: Setup) -> None:
    assert await commit_codes(setup, {ORDERS: 7}, group="") == [0]
    assert await commit_codes(setup, {ORDERS: 8}) == [0]
    assert (await committed(setup, ""), await committed(setup)) == ({ORDERS: 7}, {ORDERS: 8})
    ghost = JoinGroupResponse(generation_id=1, member_id="ghost")
    assert await commit_codes(setup, {ORDERS: 9}, ghost) == [UNKNOWN_MEMBER]
    for version, code in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        codes = await commit_codes(setup, {ORDERS: 9}, ghost, group="other", version=version)
        assert codes == [code]


@in_virtual_time(offset_metadata_max=4)
async def test_each_invalid_offset_is_rejected_on_its_own(setup: Setup) -> None:
    codes = await commit_codes(
        setup, {ORDERS: 1, ("orders", 8): 1, ("orders", -1): 1, ("nowhere", 0): 1}
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [0, unknown, unknown, unknown]
    for metadata, code in (("1234", 0), ("12345", 12), ("ab\U0001f600", 0), ("abc\U0001f600", 12)):
        assert await commit_codes(setup, {("orders", 1): 2}, metadata=metadata) == [code]
    assert await commit_codes(setup, {("orders", 2): 3}, metadata=None) == [0]
    assert await committed(setup) == {ORDERS: 1, ("orders", 1): 2, ("orders", 2): 3}


@in_virtual_time()
async def test_v10_names_topics_by_id(setup: Setup) -> None:
    topics = _by_id(b"o" * 16, 0, 7) + _by_id(b"x" * 16, 0, 8) + _by_id(b"c" * 16, 2, 9)
    response = await commit(setup, {}, version=10, topics=topics)
    assert [(each.topic_id, each.partitions[0].error_code) for each in response.topics] == [
        (b"o" * 16, 0),
        (b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        (b"c" * 16, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert await committed(setup) == {ORDERS: 7}


@in_virtual_time()
async def test_a_commit_keeps_its_member_alive(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    for offset in range(5):
        await asyncio.sleep(8)
        assert await commit_codes(setup, {ORDERS: offset}, joined) == [0]


@in_virtual_time()
async def test_a_commit_of_nothing_writes_nothing(setup: Setup) -> None:
    response = await commit(setup, {})
    assert (response.topics, setup.log.appends) == ([], 0)


@in_virtual_time()
async def test_acknowledged_offsets_survive_a_restart(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7, ("clicks", 1): 8}, metadata="note")
    await commit_codes(setup, {ORDERS: 9}, group="other")
    await setup.restart()
    assert await committed(setup) == {ORDERS: 7, ("clicks", 1): 8}
    assert await committed(setup, "other") == {ORDERS: 9}
    assert (await committed_one(setup, "clicks", 1)).metadata == "note"


# OffsetFetch


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


@pytest.mark.parametrize("version", [1, 5, 9])
def test_where_there_are_no_offsets_to_ask(version: int) -> None:
    async def scenario(setup: Setup) -> None:
        topic = OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
        request = OffsetFetchRequest(
            group_id=GROUP,
            topics=[topic],
            groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)],
        )
        setup.coordinator.close()
        setup.log.read_gate = asyncio.Event()
        for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            response = await setup.coordinator.offset_fetch(request, version)
            if version == 1:
                assert response.topics[0].partitions[0].error_code == code
            else:
                answer = response if version < 8 else response.groups[0]
                assert answer.error_code == code
            loading = asyncio.ensure_future(setup.coordinator.load_partition(0))
            await asyncio.sleep(0.1)
        setup.log.read_gate.set()
        await loading

    in_virtual_time()(scenario)()


# Deleted topics, expiry


@in_virtual_time()
async def test_a_deleted_topics_offsets_are_deleted_with_it(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7, ("clicks", 0): 8})
    setup.coordinator.on_topics_deleted([("orders", b"o" * 16)])
    await asyncio.sleep(0.1)
    assert await committed(setup) == {("clicks", 0): 8}
    await setup.restart()
    assert await committed(setup) == {("clicks", 0): 8}


@in_virtual_time()
async def test_a_topic_of_the_same_name_begins_without_offsets(setup: Setup) -> None:
    """Even if the broker stopped before the old offsets were deleted."""
    await commit_codes(setup, {ORDERS: 7})
    setup.topics.topics["orders"] = (b"n" * 16, 8)
    await setup.restart()
    assert await committed(setup) == {}
    assert (await committed_one(setup, *ORDERS)).committed_offset == -1
    assert await commit_codes(setup, {ORDERS: 1}) == [0]
    setup.coordinator.on_topics_deleted([("orders", b"o" * 16)])
    await asyncio.sleep(0.1)
    assert await committed(setup) == {ORDERS: 1}, "they are not the old topic's"


@in_virtual_time(offsets_retention_ms=3_600_000)
async def test_offsets_of_an_idle_group_expire_and_the_group_with_them(setup: Setup) -> None:
    """KIP-211."""
    (joined,) = await form(setup, 1)
    await commit_codes(setup, {ORDERS: 7}, joined)
    await asyncio.sleep(3_600)
    assert await committed(setup) == {ORDERS: 7}, "it has been empty for less than an hour"
    await asyncio.sleep(1_200)
    assert await committed(setup) == {}
    assert setup.coordinator.groups_owned == []
    await setup.restart()
    assert setup.coordinator.groups_owned == []


@in_virtual_time(offsets_retention_ms=3_600_000)
async def test_a_commit_can_name_its_own_time_to_expire(setup: Setup) -> None:
    request = {"retention_time_ms": 60_000}
    assert await commit_codes(setup, {ORDERS: 7}, version=4, **request) == [0]
    assert await commit_codes(setup, {("orders", 1): 8}) == [0]
    await setup.restart()
    await asyncio.sleep(601)
    assert await committed(setup) == {("orders", 1): 8}
