from __future__ import annotations

import asyncio

import pytest

from coordinator_members import commit, commit_codes, committed, committed_one, form, join
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.protocol.join_group import JoinGroupResponse
from lakelog.protocol.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic

UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


ORDERS = ("orders", 0)


def _by_id(topic_id: bytes, partition: int, offset: int) -> list[OffsetCommitRequestTopic]:
    each = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    return [OffsetCommitRequestTopic(topic_id=topic_id, partitions=[each])]


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
