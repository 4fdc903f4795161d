from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from coordinator_members import form, heartbeat, join, leave, new_id, sync
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.join_request import JoinRefusal
from lakelog.coordinator.group.member_requests import JoinGroup
from lakelog.protocol.join_group import JoinGroupRequest

UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time()
async def test_a_new_member_is_sent_back_for_its_id(setup: Setup) -> None:
    first = await join(setup, client_id="app")
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("app-")
    assert len(first.member_id) == len("app-") + 36
    joined = await join(setup, first.member_id)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.member_id == joined.leader == first.member_id
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [member.member_id for member in joined.members] == [first.member_id]


@in_virtual_time()
async def test_before_v4_a_member_joins_at_once(setup: Setup) -> None:
    joined = await join(setup, version=3)
    assert (joined.error_code, joined.generation_id) == (0, 1)


@in_virtual_time()
async def test_only_the_leader_learns_of_the_members(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    assert {member.member_id for member in leader.members} == {
        leader.member_id,
        follower.member_id,
    }
    assert all(bytes(member.metadata) == b"meta" for member in leader.members)
    assert follower.members == []


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
    assert setup.coordinator.groups_owned == []


@in_virtual_time()
async def test_errors_have_an_empty_protocol_name_before_it_is_nullable(setup: Setup) -> None:
    for version, name in ((6, ""), (7, None)):
        refused = await join(setup, "stranger", version=version)
        assert refused.protocol_name == name


@in_virtual_time()
async def test_a_member_must_share_an_assignor_with_all(setup: Setup) -> None:
    await form(setup, 2, protocols=(("range", b""), ("sticky", b"")))
    for options in (
        {"protocols": (("other", b""),)},
        {"protocol_type": "connect"},
    ):
        refused = await join(setup, **options)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@in_virtual_time()
async def test_a_follower_that_rejoins_unchanged_gets_the_current_generation(
    setup: Setup,
) -> None:
    leader, follower = await form(setup, 2)
    again = await join(setup, follower.member_id)
    assert (again.error_code, again.generation_id) == (0, leader.generation_id)
    assert again.members == []
    assert await heartbeat(setup, leader) == 0


@in_virtual_time()
async def test_a_leader_that_rejoins_wants_a_rebalance(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    again = join(setup, leader.member_id)
    assert await heartbeat(setup, follower) == ErrorCode.REBALANCE_IN_PROGRESS
    await join(setup, follower.member_id)
    assert (await again).generation_id == leader.generation_id + 1


@in_virtual_time()
async def test_a_changed_subscription_wants_a_rebalance(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    again = join(setup, follower.member_id, protocols=(("range", b"other"),))
    joined = await join(setup, leader.member_id)
    await again
    assert {bytes(member.metadata) for member in joined.members} == {b"meta", b"other"}


@in_virtual_time()
async def test_a_repeated_join_replaces_the_first(setup: Setup) -> None:
    leader, _follower = await form(setup, 2)
    first = join(setup, leader.member_id)
    second = join(setup, leader.member_id)
    assert (await first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert not second.done()


@in_virtual_time()
async def test_before_the_assignment_an_unchanged_rejoin_is_answered_again(
    setup: Setup,
) -> None:
    joined = await join(setup, await new_id(setup))
    again = await join(setup, joined.member_id)
    assert again == joined


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


@in_virtual_time()
async def test_no_generation_is_used_twice_across_restarts(setup: Setup) -> None:
    generations = []
    for _ in range(3):
        (joined,) = await form(setup, 1)
        generations.append(joined.generation_id)
        await setup.restart()
        assert await heartbeat(setup, joined) == 0
        await leave(setup, (joined.member_id, None))
    assert generations == sorted(set(generations))


@in_virtual_time(members_max=1)
async def test_a_group_over_a_lowered_limit_rebalances_after_loading(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    setup.coordinator._host.shard(0)
    record = setup.log.batches[0][-1]
    assert joined.member_id.encode() in record
    object.__setattr__(setup.config, "members_max", 0)
    await setup.restart()
    assert await heartbeat(setup, joined) == ErrorCode.REBALANCE_IN_PROGRESS


@in_virtual_time()
async def test_long_names_of_clients_and_instances_make_member_ids_that_fit(
    setup: Setup,
) -> None:
    first = await join(setup, client_id="c" * 32_000)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = await join(setup, first.member_id, client_id="c" * 32_000)
    assert (joined.error_code, joined.member_id) == (0, first.member_id)
    static = await join(setup, instance_id="i" * 32_767, group="static")
    assert static.error_code == 0
    assert len(static.member_id) < 300
    assert (await sync(setup, static, group="static", instance_id="i" * 32_767)).error_code == 0


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


@in_virtual_time()
async def test_a_fenced_member_is_logged_with_the_reason(setup: Setup) -> None:
    told: list[JoinRefusal] = []
    setup.coordinator._join_refused = told.append
    first = await join(setup, instance_id="printer")
    await sync(setup, first, instance_id="printer")
    second = await join(setup, instance_id="printer")
    assert second.error_code == 0
    fenced = await join(setup, first.member_id, instance_id="printer")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
    (refusal,) = told
    assert refusal.member_id == first.member_id
    assert "give each process its own" in refusal.reason


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


@pytest.mark.parametrize(("asked", "taken"), [(-1, 10_000), (0, 0), (1, 1)])
def test_the_session_timeout_stands_in_for_a_rebalance_timeout_not_sent(
    asked: int, taken: int
) -> None:
    request = JoinGroupRequest(session_timeout_ms=10_000, rebalance_timeout_ms=asked)
    made = JoinGroup.of(request, 1, "client", "/127.0.0.1", Future())
    assert made.rebalance_timeout_ms == taken
