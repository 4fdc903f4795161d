"""DeleteGroups, OffsetDelete, and offsets that expire: KIP-229, KIP-496, KIP-211, KAFKA-13636.

One eviction: its tombstones, and requests that arrive before it is decided.
"""

from __future__ import annotations

import asyncio
from typing import Any

from consumer_members import GROUP, Consumer, settle, snapshot, subscription
from coordinator_members import commit, commit_codes, committed, form, join, leave, new_id, sync
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.member import Member
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.coordinator.group.records import Decision, OffsetCommitValue
from lakelog.coordinator.group.removal import expired_offsets
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.shard import Now
from lakelog.protocol.commit_sets import SINK_TOPIC
from lakelog.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_versioned
from lakelog.protocol.groups import DeleteGroupsRequest
from lakelog.protocol.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)
DAY_MS = 24 * 3_600_000


async def delete(setup: Setup, *groups: str) -> dict[str, int]:
    request = DeleteGroupsRequest(groups_names=list(groups))
    response = await setup.coordinator.admin.delete_groups(request)
    return {each.group_id: each.error_code for each in response.results}


async def forget(setup: Setup, *partitions: tuple[str, int], group: str = GROUP) -> Any:
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
    response = await setup.coordinator.admin.offset_delete(request)
    if response.error_code:
        return response.error_code
    return [each.error_code for topic in response.topics for each in topic.partitions]


# DeleteGroups


@in_virtual_time(consumer=AT_ONCE)
async def test_groups_without_members_are_deleted_with_their_offsets(setup: Setup) -> None:
    consumer = Consumer(setup, "one", group="modern")
    await consumer.beat()
    await commit_codes(setup, {("orders", 0): 5}, group="offsets-only")
    (joined,) = await form(setup, 1)
    everybody = ("modern", "offsets-only", GROUP, "none", "none")
    assert await delete(setup, *everybody) == {
        "modern": ErrorCode.NON_EMPTY_GROUP,
        "offsets-only": 0,
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    await consumer.leave()
    await leave(setup, (joined.member_id, None))
    await commit_codes(setup, {("orders", 0): 5}, group="modern")
    assert await delete(setup, "modern", GROUP) == {"modern": 0, GROUP: 0}
    for group in ("modern", "offsets-only", GROUP):
        assert await committed(setup, group) == {}
    assert setup.group_ids == []
    await setup.restart()
    assert setup.group_ids == []
    assert snapshot(setup) == {}


@in_virtual_time(consumer=AT_ONCE)
async def test_a_deletion_waits_for_a_commit_on_its_way(setup: Setup) -> None:
    setup.log.delay_s = lambda: 1.0
    replies = [commit(setup, {("orders", 0): 5}), delete(setup, GROUP)]
    await replies[0]
    assert await replies[1] == {GROUP: 0}
    assert await committed(setup) == {}


@in_virtual_time(consumer=AT_ONCE)
async def test_a_deletion_that_cannot_be_written_returns_an_error(setup: Setup) -> None:
    await commit_codes(setup, {("orders", 0): 5})
    setup.log.fate = lambda: "refused"
    assert await delete(setup, GROUP) == {GROUP: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert await committed(setup) == {("orders", 0): 5}


@in_virtual_time(consumer=AT_ONCE)
async def test_nothing_to_delete_is_answered(setup: Setup) -> None:
    assert await delete(setup) == {}


# OffsetDelete


@in_virtual_time(consumer=AT_ONCE)
async def test_offsets_of_topics_that_are_not_read_are_deleted(setup: Setup) -> None:
    consumer = Consumer(setup, "one", topics=["clicks"])
    await consumer.beat()
    for topic in ("orders", "clicks"):
        codes = await commit_codes(
            setup,
            {(topic, 0): 7},
            member_id="one",
            generation_id_or_member_epoch=consumer.epoch,
        )
        assert codes == [0]
    asked = [("clicks", 0), ("orders", 0), ("orders", 1), ("orders", 99), ("gone", 0)]
    subscribed, unknown = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await forget(setup, *asked) == [subscribed, 0, 0, unknown, unknown]
    assert await committed(setup) == {("clicks", 0): 7}
    await consumer.leave()
    assert await forget(setup, ("clicks", 0)) == [0]
    assert await committed(setup) == {}


@in_virtual_time(consumer=AT_ONCE)
async def test_offsets_of_subscribed_topics_cannot_be_deleted(setup: Setup) -> None:
    data = subscription(["clicks"])
    member_id = await new_id(setup)
    joined = await join(setup, member_id, protocols=(("range", data),))
    await sync(setup, joined, {member_id: b""})
    await commit_codes(setup, {("orders", 0): 7, ("clicks", 0): 7}, joined)
    assert await forget(setup, ("clicks", 0), ("orders", 0)) == [86, 0]
    assert await committed(setup) == {("clicks", 0): 7}


@in_virtual_time(consumer=AT_ONCE)
async def test_whole_groups_that_refuse(setup: Setup) -> None:
    assert await forget(setup, ("orders", 0)) == ErrorCode.GROUP_ID_NOT_FOUND
    assert await forget(setup, ("orders", 0), group="") == ErrorCode.INVALID_GROUP_ID
    await form(setup, 1, protocol_type="connect")
    assert await forget(setup, ("orders", 0)) == ErrorCode.NON_EMPTY_GROUP


# Expiration


async def days(setup: Setup, count: int, *beating: Consumer) -> None:
    """Advance the wall clock, with heartbeats and checks for expired offsets."""
    setup.clock.leap(count * DAY_MS)
    for _ in range(130):
        await asyncio.sleep(5)
        for consumer in beating:
            assert (await consumer.beat()).error_code == 0


@in_virtual_time(consumer=AT_ONCE)
async def test_kip_211_offsets_of_a_live_group_never_expire(setup: Setup) -> None:
    consumer = Consumer(setup, "one", topics=["orders"])
    await settle(consumer)
    as_member = {"member_id": "one", "generation_id_or_member_epoch": consumer.epoch}
    await commit_codes(setup, {("orders", 0): 5, ("clicks", 0): 6}, **as_member)
    await days(setup, 8, consumer)
    assert await committed(setup) == {("orders", 0): 5}, "no member subscribes to clicks"


@in_virtual_time(consumer=AT_ONCE)
async def test_kip_211_an_empty_consumer_group_goes_with_its_offsets(setup: Setup) -> None:
    consumer = Consumer(setup, "one")
    await settle(consumer)
    as_member = {"member_id": "one", "generation_id_or_member_epoch": consumer.epoch}
    await commit_codes(setup, {("orders", 0): 5}, **as_member)
    await consumer.leave()
    await days(setup, 6)
    assert await committed(setup) == {("orders", 0): 5}
    await days(setup, 2)
    assert setup.group_ids == []
    await setup.restart()
    assert snapshot(setup) == {}


@in_virtual_time(consumer=AT_ONCE)
async def test_kafka_13636_nothing_expires_while_a_group_rebalances(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    await commit_codes(setup, {("orders", 0): 5}, joined)
    setup.clock.leap(8 * DAY_MS)
    waiting = None
    for _ in range(130):
        waiting = join(setup, joined.member_id)
        await asyncio.sleep(5)
        if waiting.done():
            joined = waiting.result()
    assert await committed(setup) == {("orders", 0): 5}


@in_virtual_time(consumer=AT_ONCE)
async def test_offsets_of_a_deleted_topic_go_with_it(setup: Setup) -> None:
    await commit_codes(setup, {("orders", 0): 5, ("clicks", 0): 6})
    topic_id, _ = setup.topics.topics.pop("orders")
    setup.coordinator.on_topics_deleted([("orders", topic_id)])
    await asyncio.sleep(1)
    setup.topics.topics["orders"] = (topic_id, 8)
    assert await committed(setup) == {("clicks", 0): 6}


ORDERS = ("orders", 0)


@in_virtual_time(offsets_retention_ms=3_600_000)
async def test_offsets_of_an_idle_group_expire_and_the_group_with_them(setup: Setup) -> None:
    """KIP-211."""
    (joined,) = await form(setup, 1)
    await commit_codes(setup, {ORDERS: 7}, joined)
    await asyncio.sleep(3_600)
    assert await committed(setup) == {ORDERS: 7}, "it has been empty for less than an hour"
    await asyncio.sleep(1_200)
    assert await committed(setup) == {}
    assert setup.group_ids == []
    await setup.restart()
    assert setup.group_ids == []


@in_virtual_time(offsets_retention_ms=3_600_000)
async def test_a_commit_can_name_its_own_time_to_expire(setup: Setup) -> None:
    request = {"retention_time_ms": 60_000}
    assert await commit_codes(setup, {ORDERS: 7}, version=4, **request) == [0]
    assert await commit_codes(setup, {("orders", 1): 8}) == [0]
    await setup.restart()
    await asyncio.sleep(601)
    assert await committed(setup) == {("orders", 1): 8}


def _evict(setup: Setup, group: str = "a") -> None:
    def decide(shard: GroupShard, now: Now) -> Decision:
        return shard.evictions.evict(now, group)

    setup.coordinator._host.decide(0, decide)


@in_virtual_time()
async def test_an_evicted_group_is_gone_after_a_restart_too(setup: Setup) -> None:
    (member,) = await form(setup, 1, group="a")
    await commit_codes(setup, {ORDERS: 7}, member, group="a")
    await leave(setup, (member.member_id, None), group="a")
    assert setup.group_ids == ["a"]
    _evict(setup)
    await asyncio.sleep(0.1)
    assert setup.group_ids == []
    assert setup.coordinator.counts.groups_evicted == 1
    assert setup.memory.used == setup.memory.leaving == 0
    await setup.restart()
    assert setup.group_ids == []


@in_virtual_time()
async def test_a_group_with_a_member_is_not_evicted(setup: Setup) -> None:
    (member,) = await form(setup, 1, group="a")
    await commit_codes(setup, {ORDERS: 7}, member, group="a")
    _evict(setup)
    await asyncio.sleep(0.1)
    assert await committed(setup, "a") == {ORDERS: 7}
    assert setup.coordinator.counts.groups_evicted == 0


@in_virtual_time()
async def test_a_commit_that_precedes_the_eviction_keeps_the_group(setup: Setup) -> None:
    """It shows that the group is in use; the eviction waits for it and is decided again."""
    await commit_codes(setup, {ORDERS: 7}, group="a")
    await asyncio.sleep(11)
    setup.log.delay_s = lambda: 1.0
    reply = commit(setup, {ORDERS: 8}, group="a")
    _evict(setup)
    await reply
    await asyncio.sleep(3)
    assert await committed(setup, "a") == {ORDERS: 8}
    assert setup.coordinator.counts.groups_evicted == 0


@in_virtual_time()
async def test_a_commit_during_an_eviction_follows_it(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7, ("orders", 1): 7}, group="a")
    setup.log.delay_s = lambda: 1.0
    _evict(setup)
    reply = commit(setup, {ORDERS: 8}, group="a")
    await reply
    assert await committed(setup, "a") == {ORDERS: 8}
    assert setup.coordinator.counts.groups_evicted == 1


@in_virtual_time()
async def test_a_member_that_joins_during_an_eviction_has_its_group(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7}, group="a")
    setup.log.delay_s = lambda: 1.0
    _evict(setup)
    joined = await join(setup, group="a", version=3)
    assert joined.error_code == 0
    assert setup.group_ids == ["a"]
    assert setup.coordinator.group_count == 1


@in_virtual_time()
async def test_an_eviction_that_cannot_be_written_leaves_the_group(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7}, group="a")
    setup.log.fate = lambda: "refused"
    _evict(setup)
    await asyncio.sleep(0.1)
    setup.log.fate = lambda: "ok"
    assert await committed(setup, "a") == {ORDERS: 7}
    assert setup.coordinator.counts.groups_evicted == 0
    assert setup.memory.leaving == 0
    codes = await commit_codes(setup, {ORDERS: 8}, group="a")
    assert codes == [ErrorCode.NONE]


_RETENTION_MS = 1000


def _expired(
    group: ClassicGroup | None, now_ms: int, committed_ms: int = 0, expires_ms: int = -1
) -> list[str]:
    value = OffsetCommitValue(offset=1, commit_timestamp=committed_ms, expire_timestamp=expires_ms)
    offsets = {"orders": {0: value}, "clicks": {0: value}}
    keys = expired_offsets("g", group, offsets, now_ms, _RETENTION_MS)
    assert all((key.group, key.partition) == ("g", 0) for key in keys)
    return [key.topic for key in keys]


def _member(subscription: bytes) -> Member:
    return Member("m", None, "", "", 1, 1, (("range", subscription),))


def _group(state: GroupState, *, protocol_type: str = "consumer") -> ClassicGroup:
    group = ClassicGroup("g")
    subscription = ConsumerProtocolSubscription(topics=["orders"])
    group.add(_member(encode_versioned(subscription, 3)))
    group.protocol_type, group.protocol, group.state = protocol_type, "range", state
    return group


def test_without_a_group_the_retention_time_begins_with_the_commit() -> None:
    assert _expired(None, 1499, committed_ms=500) == []
    assert _expired(None, 1500, committed_ms=500) == ["orders", "clicks"]


def test_in_an_empty_group_it_begins_when_the_last_member_leaves() -> None:
    group = ClassicGroup("g")
    group.state_timestamp_ms = 700
    assert _expired(group, 1699, committed_ms=500) == []
    assert _expired(group, 1700, committed_ms=500) == ["orders", "clicks"]


def test_members_keep_the_offsets_of_the_topics_that_they_subscribe_to() -> None:
    """KAFKA-13636: the others expire although the group is in use."""
    assert _expired(_group(GroupState.STABLE), 5000) == ["clicks"]


def test_nothing_expires_while_the_subscriptions_are_unknown() -> None:
    assert _expired(_group(GroupState.PREPARING_REBALANCE), 5000) == []
    assert _expired(_group(GroupState.STABLE, protocol_type="connect"), 5000) == []
    malformed = _group(GroupState.STABLE)
    malformed.members["m"].protocols = (("range", b"\0"),)
    assert _expired(malformed, 5000) == []


def test_a_commit_may_name_its_own_time() -> None:
    assert _expired(None, 200, expires_ms=201) == []
    assert _expired(None, 201, expires_ms=201) == ["orders", "clicks"]
    assert _expired(None, 5000, expires_ms=5001) == []


def test_the_control_record_of_a_sink_never_expires() -> None:
    value = OffsetCommitValue(offset=8, commit_timestamp=0)
    offsets = {topic: {0: value} for topic in (SINK_TOPIC, "orders")}
    (key,) = expired_offsets("lk-sink-s", None, offsets, 10 * _RETENTION_MS, _RETENTION_MS)
    assert key.topic == "orders"
