"""DeleteGroups, OffsetDelete, and offsets that expire: KIP-229, KIP-496, KIP-211, KAFKA-13636."""

from __future__ import annotations

import asyncio
from typing import Any

from consumer_members import GROUP, Consumer, settle, snapshot, subscription
from coordinator_members import commit, commit_codes, committed, form, join, leave, new_id, sync
from coordinator_world import World, in_world
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.protocol.delete_groups import DeleteGroupsRequest
from lakelog.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)
DAY_MS = 24 * 3_600_000


async def delete(world: World, *groups: str) -> dict[str, int]:
    request = DeleteGroupsRequest(groups_names=list(groups))
    response = await world.coordinator.admin.delete_groups(request)
    return {each.group_id: each.error_code for each in response.results}


async def forget(world: World, *partitions: tuple[str, int], group: str = GROUP) -> Any:
    """Return the code of the response, or of each partition."""
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
            )
            for topic, partition in partitions
        ],
    )
    response = await world.coordinator.admin.offset_delete(request)
    if response.error_code:
        return response.error_code
    return [each.error_code for topic in response.topics for each in topic.partitions]


# DeleteGroups


@in_world(consumer=AT_ONCE)
async def test_groups_without_members_are_deleted_with_their_offsets(world: World) -> None:
    consumer = Consumer(world, "one", group="modern")
    await consumer.beat()
    await commit_codes(world, {("orders", 0): 5}, group="offsets-only")
    (joined,) = await form(world, 1)
    everybody = ("modern", "offsets-only", GROUP, "none", "none")
    assert await delete(world, *everybody) == {
        "modern": ErrorCode.NON_EMPTY_GROUP,
        "offsets-only": 0,
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    await consumer.leave()
    await leave(world, (joined.member_id, None))
    await commit_codes(world, {("orders", 0): 5}, group="modern")
    assert await delete(world, "modern", GROUP) == {"modern": 0, GROUP: 0}
    for group in ("modern", "offsets-only", GROUP):
        assert await committed(world, group) == {}
    assert world.coordinator.groups_owned == []
    await world.restart()
    assert world.coordinator.groups_owned == []
    assert snapshot(world) == {}


@in_world(consumer=AT_ONCE)
async def test_a_deletion_waits_for_a_commit_on_its_way(world: World) -> None:
    world.log.delay_s = lambda: 1.0
    replies = [commit(world, {("orders", 0): 5}), delete(world, GROUP)]
    await replies[0]
    assert await replies[1] == {GROUP: 0}
    assert await committed(world) == {}


@in_world(consumer=AT_ONCE)
async def test_a_deletion_that_cannot_be_written_returns_an_error(world: World) -> None:
    await commit_codes(world, {("orders", 0): 5})
    world.log.fate = lambda: "refused"
    assert await delete(world, GROUP) == {GROUP: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert await committed(world) == {("orders", 0): 5}


@in_world(consumer=AT_ONCE)
async def test_nothing_to_delete_is_answered(world: World) -> None:
    assert await delete(world) == {}


# OffsetDelete


@in_world(consumer=AT_ONCE)
async def test_offsets_of_topics_that_are_not_read_are_deleted(world: World) -> None:
    consumer = Consumer(world, "one", topics=["clicks"])
    await consumer.beat()
    for topic in ("orders", "clicks"):
        codes = await commit_codes(
            world,
            {(topic, 0): 7},
            member_id="one",
            generation_id_or_member_epoch=consumer.epoch,
        )
        assert codes == [0]
    asked = [("clicks", 0), ("orders", 0), ("orders", 1), ("orders", 99), ("gone", 0)]
    subscribed, unknown = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await forget(world, *asked) == [subscribed, 0, 0, unknown, unknown]
    assert await committed(world) == {("clicks", 0): 7}
    await consumer.leave()
    assert await forget(world, ("clicks", 0)) == [0]
    assert await committed(world) == {}


@in_world(consumer=AT_ONCE)
async def test_offsets_of_subscribed_topics_cannot_be_deleted(world: World) -> None:
    data = subscription(["clicks"])
    member_id = await new_id(world)
    joined = await join(world, member_id, protocols=(("range", data),))
    await sync(world, joined, {member_id: b""})
    await commit_codes(world, {("orders", 0): 7, ("clicks", 0): 7}, joined)
    assert await forget(world, ("clicks", 0), ("orders", 0)) == [86, 0]
    assert await committed(world) == {("clicks", 0): 7}


@in_world(consumer=AT_ONCE)
async def test_whole_groups_that_refuse(world: World) -> None:
    assert await forget(world, ("orders", 0)) == ErrorCode.GROUP_ID_NOT_FOUND
    assert await forget(world, ("orders", 0), group="") == ErrorCode.INVALID_GROUP_ID
    await form(world, 1, protocol_type="connect")
    assert await forget(world, ("orders", 0)) == ErrorCode.NON_EMPTY_GROUP


# Expiration


async def days(world: World, count: int, *beating: Consumer) -> None:
    """Advance the wall clock, with heartbeats and checks for expired offsets."""
    world.clock.leap(count * DAY_MS)
    for _ in range(130):
        await asyncio.sleep(5)
        for consumer in beating:
            assert (await consumer.beat()).error_code == 0


@in_world(consumer=AT_ONCE)
async def test_kip_211_offsets_of_a_live_group_never_expire(world: World) -> None:
    consumer = Consumer(world, "one", topics=["orders"])
    await settle(consumer)
    as_member = {"member_id": "one", "generation_id_or_member_epoch": consumer.epoch}
    await commit_codes(world, {("orders", 0): 5, ("clicks", 0): 6}, **as_member)
    await days(world, 8, consumer)
    assert await committed(world) == {("orders", 0): 5}, "no member subscribes to clicks"


@in_world(consumer=AT_ONCE)
async def test_kip_211_an_empty_consumer_group_goes_with_its_offsets(world: World) -> None:
    consumer = Consumer(world, "one")
    await settle(consumer)
    as_member = {"member_id": "one", "generation_id_or_member_epoch": consumer.epoch}
    await commit_codes(world, {("orders", 0): 5}, **as_member)
    await consumer.leave()
    await days(world, 6)
    assert await committed(world) == {("orders", 0): 5}
    await days(world, 2)
    assert world.coordinator.groups_owned == []
    await world.restart()
    assert snapshot(world) == {}


@in_world(consumer=AT_ONCE)
async def test_kafka_13636_nothing_expires_while_a_group_rebalances(world: World) -> None:
    (joined,) = await form(world, 1)
    await commit_codes(world, {("orders", 0): 5}, joined)
    world.clock.leap(8 * DAY_MS)
    waiting = None
    for _ in range(130):
        waiting = join(world, joined.member_id)
        await asyncio.sleep(5)
        if waiting.done():
            joined = waiting.result()
    assert await committed(world) == {("orders", 0): 5}


@in_world(consumer=AT_ONCE)
async def test_offsets_of_a_deleted_topic_go_with_it(world: World) -> None:
    await commit_codes(world, {("orders", 0): 5, ("clicks", 0): 6})
    topic_id, _ = world.topics.topics.pop("orders")
    world.coordinator.on_topics_deleted([("orders", topic_id)])
    await asyncio.sleep(1)
    world.topics.topics["orders"] = (topic_id, 8)
    assert await committed(world) == {("clicks", 0): 6}
