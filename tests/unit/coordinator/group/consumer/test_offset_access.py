"""Checks of commits and fetches of a consumer group's offsets: KIP-848, KIP-1251."""

from __future__ import annotations

from typing import Any

from consumer_members import GROUP, Consumer, settle, subscription
from coordinator_members import commit_codes, committed, join
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


async def as_member(
    setup: Setup, member: Consumer, partition: int, *, epoch: int | None = None, **changes: Any
) -> int:
    codes = await commit_codes(
        setup,
        {("orders", partition): 7},
        member_id=member.member_id,
        generation_id_or_member_epoch=member.epoch if epoch is None else epoch,
        **changes,
    )
    return codes[0]


async def fetch(setup: Setup, member_id: str | None, epoch: int) -> int:
    group = OffsetFetchRequestGroup(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None
    )
    response = await setup.coordinator.offset_fetch(OffsetFetchRequest(groups=[group]), 9)
    code: int = response.groups[0].error_code
    return code


@in_virtual_time(consumer=AT_ONCE)
async def test_kip_848_a_stale_epoch_commits_nothing(setup: Setup) -> None:
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    await settle(one, two)
    (mine, *_), (theirs, *_) = one.of(), two.of()
    assert await as_member(setup, one, mine) == 0
    assert await as_member(setup, one, mine, epoch=one.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert await as_member(setup, one, theirs, epoch=0) == ErrorCode.STALE_MEMBER_EPOCH
    assert await as_member(setup, one, mine, epoch=-1) == ErrorCode.STALE_MEMBER_EPOCH
    assert await as_member(setup, Consumer(setup, "nobody"), 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(await committed(setup)) == [("orders", mine)]


@in_virtual_time(consumer=AT_ONCE)
async def test_kip_1251_an_older_epoch_commits_partitions_owned_since_then(
    setup: Setup,
) -> None:
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    await one.beat()
    before = one.epoch
    await settle(one, two)
    kept = min(one.of())
    assert one.epoch > before
    assert await as_member(setup, one, kept, epoch=before) == 0
    assert await as_member(setup, one, kept, epoch=before - 1) == ErrorCode.STALE_MEMBER_EPOCH
    given = min(two.of())
    assert await as_member(setup, one, given, epoch=before) == ErrorCode.STALE_MEMBER_EPOCH


@in_virtual_time(consumer=AT_ONCE)
async def test_a_member_must_speak_the_newer_version(setup: Setup) -> None:
    one = Consumer(setup, "one")
    await one.beat()
    assert await as_member(setup, one, 0, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert await as_member(setup, one, 0, version=9) == 0


@in_virtual_time(consumer=AT_ONCE)
async def test_commits_by_topic_id(setup: Setup) -> None:
    one = Consumer(setup, "one")
    await one.beat()
    request: dict[str, Any] = {
        "member_id": "one",
        "generation_id_or_member_epoch": one.epoch,
        "version": 10,
    }
    codes = await commit_codes(setup, {("orders", 0): 7}, **request)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID], "the id of no topic"


@in_virtual_time(consumer=AT_ONCE)
async def test_an_older_epoch_is_checked_by_topic_id_since_version_10(setup: Setup) -> None:
    one = Consumer(setup, "one")
    await one.beat()
    topic = OffsetCommitRequestTopic(
        topic_id=setup.topics.topics["orders"][0],
        partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
    )
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id="one",
        generation_id_or_member_epoch=one.epoch - 1,
        topics=[topic],
    )
    response = await setup.coordinator.offset_commit(request, 10)
    assert response.topics[0].partitions[0].error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert await committed(setup) == {}


@in_virtual_time(consumer=AT_ONCE)
async def test_a_classic_member_gets_error_codes_of_the_classic_protocol(setup: Setup) -> None:
    await Consumer(setup, "one").beat()
    data = (("range", subscription(["orders"])),)
    member_id = (await join(setup, "", protocols=data)).member_id
    joined = await join(setup, member_id, protocols=data)
    assert await commit_codes(setup, {("orders", 0): 7}, joined, version=7) == [0]
    joined.generation_id -= 1
    codes = await commit_codes(setup, {("orders", 0): 7}, joined, version=7)
    assert codes == [ErrorCode.ILLEGAL_GENERATION]


@in_virtual_time(consumer=AT_ONCE)
async def test_a_client_without_member_id_may_commit_to_a_group_without_members(
    setup: Setup,
) -> None:
    one = Consumer(setup, "one")
    await one.beat()
    assert await commit_codes(setup, {("orders", 0): 7}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    await one.leave()
    assert await commit_codes(setup, {("orders", 0): 7}) == [0]
    late = await commit_codes(
        setup, {("orders", 0): 9}, generation_id_or_member_epoch=0, member_id="one"
    )
    assert late == [ErrorCode.UNKNOWN_MEMBER_ID], "a former member may not"


@in_virtual_time(consumer=AT_ONCE)
async def test_fetches_name_the_member_and_its_epoch_or_neither(setup: Setup) -> None:
    one = Consumer(setup, "one")
    await one.beat()
    assert await fetch(setup, None, -1) == 0
    assert await fetch(setup, "one", one.epoch) == 0
    assert await fetch(setup, "one", one.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert await fetch(setup, "nobody", one.epoch) == ErrorCode.UNKNOWN_MEMBER_ID


# Offsets in a transaction (KIP-447)


async def in_transaction(
    setup: Setup, member: Consumer, *, version: int = 6, **changes: Any
) -> int:
    by_id = version >= 6
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=GROUP,
        producer_id=1,
        producer_epoch=0,
        generation_id_or_member_epoch=member.epoch,
        member_id=member.member_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="" if by_id else "orders",
                topic_id=setup.topics.topics["orders"][0] if by_id else bytes(16),
                partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9)],
            )
        ],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    response = await setup.coordinator.txn_offset_commit(request, version)
    code: int = response.topics[0].partitions[0].error_code
    return code


@in_virtual_time(consumer=AT_ONCE)
async def test_kip_447_a_stale_epoch_commits_nothing_in_a_transaction(setup: Setup) -> None:
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    await settle(one, two)
    epoch = {"generation_id_or_member_epoch": one.epoch + 1}
    assert await in_transaction(setup, one, **epoch) == ErrorCode.STALE_MEMBER_EPOCH
    assert await in_transaction(setup, one, version=5, **epoch) == ErrorCode.ILLEGAL_GENERATION
    stranger = Consumer(setup, "nobody")
    assert await in_transaction(setup, stranger) == ErrorCode.UNKNOWN_MEMBER_ID
    nobody = {"member_id": "", "generation_id_or_member_epoch": -1}
    assert await in_transaction(setup, stranger, version=2, **nobody) == 0
    assert await in_transaction(setup, one) == 0
    assert await committed(setup) == {}, "not before the marker"
