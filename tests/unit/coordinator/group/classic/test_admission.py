from __future__ import annotations

import asyncio

from coordinator_members import form, heartbeat, join, leave, new_id
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.member import JoinRefusal
from lakelog.protocol.groups import JoinGroupRequest

UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time()
async def test_requests_that_no_group_can_take(setup: Setup) -> None:
    assert (await join(setup, group="")).error_code == ErrorCode.INVALID_GROUP_ID
    for timeout_ms in (5_999, 1_800_001):
        refused = await join(setup, session_timeout_ms=timeout_ms)
        assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    for options in ({"protocols": ()}, {"protocol_type": ""}):
        refused = await join(setup, **options)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await join(setup, "stranger")).error_code == UNKNOWN_MEMBER
    assert setup.group_ids == []


@in_virtual_time()
async def test_a_member_must_share_an_assignor_with_all(setup: Setup) -> None:
    await form(setup, 2, protocols=(("range", b""), ("sticky", b"")))
    for options in (
        {"protocols": (("other", b""),)},
        {"protocol_type": "connect"},
    ):
        refused = await join(setup, **options)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@in_virtual_time(members_max=2)
async def test_a_full_group_rejects_new_members(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    refused = await join(setup)
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    again = join(setup, leader.member_id)
    await join(setup, follower.member_id)
    assert (await again).error_code == 0


@in_virtual_time(members_max=3, initial_rebalance_delay_ms=3000)
async def test_the_slower_of_too_many_is_refused(setup: Setup) -> None:
    """Member ids are unlimited; the members that join first get in."""
    ids = [await new_id(setup) for _ in range(4)]
    replies = [join(setup, member_id) for member_id in ids]
    codes = [(await reply).error_code for reply in replies]
    assert codes == [0, 0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


@in_virtual_time(members_max=3)
async def test_a_member_that_does_not_rejoin_makes_room_for_another(setup: Setup) -> None:
    """As in Kafka, parked members count during a rebalance, not members that may rejoin."""
    ids = [await new_id(setup) for _ in range(4)]
    replies = [join(setup, member_id) for member_id in ids]
    joined = [await reply for reply in replies]
    assert [each.error_code for each in joined] == [0, 0, 0, 0]
    assert await heartbeat(setup, joined[0]) == UNKNOWN_MEMBER


@in_virtual_time(members_max=2)
async def test_a_rebalance_does_not_wait_for_a_refused_member(setup: Setup) -> None:
    """The pending member got its id while there was room; the rebalance waits only for it."""
    (first,) = await form(setup, 1)
    second_id, third_id = await new_id(setup), await new_id(setup)
    waiting = [join(setup, first.member_id), join(setup, second_id)]
    await asyncio.sleep(1)
    assert not any(reply.done() for reply in waiting)
    before = setup.clock.monotonic()
    refused = await join(setup, third_id)
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert {(await reply).generation_id for reply in waiting} == {first.generation_id + 1}
    assert setup.clock.monotonic() == before


@in_virtual_time(members_max=1)
async def test_a_group_over_a_lowered_limit_rebalances_after_loading(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    setup.coordinator._host.shard(0)
    record = setup.log.batches[0][-1]
    assert joined.member_id.encode() in record
    object.__setattr__(setup.config, "members_max", 0)
    await setup.restart()
    assert await heartbeat(setup, joined) == ErrorCode.REBALANCE_IN_PROGRESS


@in_virtual_time(members_max=1)
async def test_a_refused_join_is_logged_with_the_reason(setup: Setup) -> None:
    told: list[JoinRefusal] = []
    setup.coordinator._join_refused = told.append
    await form(setup, 1)
    assert (await join(setup, client_id="late")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    request = JoinGroupRequest(group_id="group", session_timeout_ms=1)
    reply = setup.coordinator.join_group(request, 9, "hasty", "/127.0.0.1")
    assert (await reply).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert [(refusal.client_id, refusal.code) for refusal in told] == [
        ("late", ErrorCode.GROUP_MAX_SIZE_REACHED),
        ("hasty", ErrorCode.INVALID_SESSION_TIMEOUT),
    ]
    assert "which is group.max.size; use another group" in told[0].reason
    assert "session.timeout.ms=1 is not between" in told[1].reason


@in_virtual_time(members_max=2)
async def test_a_member_that_waits_in_a_full_group_may_repeat_its_request(
    setup: Setup,
) -> None:
    (first,) = await form(setup, 1)
    second_id, third_id = await new_id(setup), await new_id(setup)
    waiting = [join(setup, first.member_id), join(setup, second_id)]
    again = join(setup, second_id)
    assert (await waiting[1]).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    await leave(setup, (third_id, None))
    joined = [await waiting[0], await again]
    assert [(each.error_code, each.generation_id) for each in joined] == [
        (0, first.generation_id + 1)
    ] * 2
