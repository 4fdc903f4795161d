"""Requests of classic members of a consumer group (online migration of KIP-848)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer_members import Consumer, assigned, describe, group_of, settle, subscription
from coordinator_members import heartbeat, join, leave, sync
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.config import ConsumerConfig, MigrationPolicy
from lakelog.protocol.groups import JoinGroupResponse

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)
ORDERS = (("range", subscription(["orders"])),)


async def _joined(setup: Setup, member_id: str = "", **options: Any) -> JoinGroupResponse:
    """Join as a client that may name itself, without a first round for a member id."""
    options.setdefault("protocols", ORDERS)
    response = await join(setup, member_id, version=3, **options)
    assert response.error_code == 0, response
    answer: JoinGroupResponse = response
    return answer


@in_virtual_time(consumer=AT_ONCE)
async def test_a_new_member_gets_an_id_first(setup: Setup) -> None:
    """KIP-394: a client that retries its first request creates no second member."""
    await Consumer(setup, "new").beat()
    first = await join(setup, protocols=ORDERS)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert list(group_of(setup).members) == ["new"]
    second = await join(setup, first.member_id, protocols=ORDERS)
    assert (second.error_code, second.member_id) == (0, first.member_id)


@in_virtual_time(consumer=AT_ONCE)
async def test_no_member_leads_and_the_coordinator_assigns(setup: Setup) -> None:
    new = Consumer(setup, "new", topics=["clicks"])
    await new.beat()
    joined = await _joined(setup)
    assert (joined.protocol_name, joined.leader, joined.members) == ("range", "", [])
    response = await sync(setup, joined)
    assert assigned(response.assignment) == {"orders": list(range(8))}
    assert await heartbeat(setup, joined) == 0


@in_virtual_time(consumer=AT_ONCE)
async def test_a_heartbeat_asks_for_a_join_when_partitions_have_to_be_revoked(
    setup: Setup,
) -> None:
    await Consumer(setup, "idle", topics=["clicks"]).beat()
    joined = await _joined(setup)
    await sync(setup, joined)
    new = Consumer(setup, "new")
    await new.beat()
    assert new.of() == set()
    assert await heartbeat(setup, joined) == ErrorCode.REBALANCE_IN_PROGRESS
    owned = subscription(["orders"], {"orders": list(range(8))})
    again = await _joined(setup, joined.member_id, protocols=(("range", owned),))
    response = await sync(setup, again)
    kept = assigned(response.assignment)["orders"]
    assert len(kept) == 4
    released = subscription(["orders"], {"orders": kept})
    last = await _joined(setup, joined.member_id, protocols=(("range", released),))
    await sync(setup, last)
    await settle(new)
    assert new.of() == set(range(8)) - set(kept)
    assert await heartbeat(setup, last) == 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"generation_id": 77}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "new"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_of_another_member_generation_or_protocol_is_rejected(
    changes: dict[str, Any], code: ErrorCode
) -> None:
    """`new` is a member of the consumer protocol."""

    @in_virtual_time(consumer=AT_ONCE)
    async def scenario(setup: Setup) -> None:
        await Consumer(setup, "new", topics=["clicks"]).beat()
        response = await sync(setup, await _joined(setup), **changes)
        assert (response.error_code, response.assignment) == (code, b"")

    scenario()


@in_virtual_time(consumer=AT_ONCE)
async def test_a_sync_after_a_newer_assignment_asks_for_a_join(setup: Setup) -> None:
    await Consumer(setup, "idle", topics=["clicks"]).beat()
    joined = await _joined(setup)
    await Consumer(setup, "new").beat()
    assert (await sync(setup, joined)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    "options",
    [
        {"protocol_type": "connect"},
        {"protocols": (("sticky", subscription(["orders"])),)},
        {"protocols": (("range", b"\x00"),)},
    ],
)
def test_a_join_that_the_other_members_cannot_share_is_rejected(options: dict[str, Any]) -> None:
    @in_virtual_time(consumer=AT_ONCE)
    async def scenario(setup: Setup) -> None:
        await Consumer(setup, "new").beat()
        joined = await _joined(setup)
        response = await join(setup, version=3, **{"protocols": ORDERS, **options})
        assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert set(group_of(setup).members) == {"new", joined.member_id}

    scenario()


@in_virtual_time(
    consumer=ConsumerConfig(assignment_interval_ms=0, migration=MigrationPolicy.DISABLED)
)
async def test_without_migration_the_protocols_do_not_mix(setup: Setup) -> None:
    await Consumer(setup, "new").beat()
    response = await join(setup, version=3, protocols=ORDERS)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@in_virtual_time(consumer=ConsumerConfig(assignment_interval_ms=0, members_max=2))
async def test_a_full_group_accepts_its_members_and_no_others(setup: Setup) -> None:
    await Consumer(setup, "new", topics=["clicks"]).beat()
    joined = await _joined(setup)
    refused = await join(setup, version=3, protocols=ORDERS)
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert (await _joined(setup, joined.member_id)).member_id == joined.member_id


@in_virtual_time(consumer=AT_ONCE)
async def test_a_new_process_of_a_static_member_fences_the_old_one(setup: Setup) -> None:
    await Consumer(setup, "new", topics=["clicks"]).beat()
    old = await _joined(setup, instance_id="i")
    new = await _joined(setup, instance_id="i")
    assert new.member_id != old.member_id
    assert await heartbeat(setup, old, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    response = await sync(setup, new, instance_id="i")
    assert assigned(response.assignment) == {"orders": list(range(8))}


@in_virtual_time(consumer=AT_ONCE)
async def test_members_leave_by_either_id_and_each_has_its_own_code(setup: Setup) -> None:
    stays = Consumer(setup, "stays", topics=["clicks"])
    await stays.beat()
    dynamic, static = await _joined(setup), await _joined(setup, instance_id="i")
    response = await leave(
        setup, (dynamic.member_id, None), ("", "i"), ("unknown", None), (static.member_id, "z")
    )
    codes = [each.error_code for each in response.members]
    assert codes == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(group_of(setup).members) == ["stays"]


@in_virtual_time(consumer=AT_ONCE)
async def test_a_member_without_heartbeats_is_dropped_after_its_own_session_timeout(
    setup: Setup,
) -> None:
    new = Consumer(setup, "new", topics=["clicks"])
    await new.beat()
    joined = await _joined(setup, session_timeout_ms=10_000)
    await sync(setup, joined)
    for _ in range(3):
        await asyncio.sleep(6)
        assert await heartbeat(setup, joined) == 0
        await new.beat()
    await asyncio.sleep(10.1)
    assert [each.member_id for each in (await describe(setup)).members] == ["new"]


@in_virtual_time(consumer=AT_ONCE)
async def test_a_member_that_does_not_sync_in_time_is_dropped(setup: Setup) -> None:
    await Consumer(setup, "new", topics=["clicks"]).beat()
    await _joined(setup, rebalance_timeout_ms=5000)
    await asyncio.sleep(6)
    assert list(group_of(setup).members) == ["new"]
