from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator_members import GROUP, form, heartbeat, join, leave, new_id, sync
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.group import select_protocol
from lakelog.coordinator.group.classic.join import Join
from lakelog.coordinator.group.classic.pending_members import PENDING_BYTES_MAX, PENDING_MAX
from lakelog.coordinator.group.refusal import JoinRefusal
from lakelog.protocol.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)

UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("choices", "selected"),
    [
        ([["range"]], "range"),
        ([["range", "sticky"], ["sticky", "range"], ["sticky", "range"]], "sticky"),
        ([["range", "sticky"], ["sticky", "range"]], "range"),
        ([["range", "sticky"], ["sticky"]], "sticky"),
        ([["new", "range"], ["new", "range"], ["range"]], "range"),
        ([], None),
    ],
)
def test_the_vote(choices: list[list[str]], selected: str | None) -> None:
    assert select_protocol(choices) == selected


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
async def test_a_third_member_starts_a_rebalance_that_all_must_join(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    newcomer = join(setup, await new_id(setup))
    await asyncio.sleep(0)
    assert not newcomer.done()
    assert await heartbeat(setup, leader) == ErrorCode.REBALANCE_IN_PROGRESS
    again = [join(setup, leader.member_id), join(setup, follower.member_id)]
    joined = [await reply for reply in (newcomer, *again)]
    assert {each.generation_id for each in joined} == {leader.generation_id + 1}
    assert len({each.leader for each in joined}) == 1


@in_virtual_time()
async def test_a_member_that_does_not_rejoin_in_time_is_removed(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    newcomer = join(setup, await new_id(setup))
    again = join(setup, follower.member_id)
    started = setup.clock.monotonic()
    for _ in range(29):
        await asyncio.sleep(1)
        await heartbeat(setup, leader)
    joined = await newcomer
    assert setup.clock.monotonic() - started == pytest.approx(30, abs=0.01)
    assert (await again).generation_id == joined.generation_id == leader.generation_id + 1
    assert joined.leader == follower.member_id
    assert await heartbeat(setup, leader) == UNKNOWN_MEMBER


@in_virtual_time()
async def test_a_member_whose_session_ends_during_a_rebalance_is_not_waited_for(
    setup: Setup,
) -> None:
    leader, follower = await form(setup, 2)
    newcomer = join(setup, await new_id(setup))
    again = join(setup, follower.member_id)
    started = setup.clock.monotonic()
    await newcomer
    await again
    assert setup.clock.monotonic() - started == pytest.approx(10, abs=0.01)
    assert await heartbeat(setup, leader) == UNKNOWN_MEMBER


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


@in_virtual_time(initial_rebalance_delay_ms=3000)
async def test_an_empty_group_waits_for_more_members(setup: Setup) -> None:
    replies = []
    started = setup.clock.monotonic()
    for _ in range(3):
        replies.append(join(setup, version=3))
        await asyncio.sleep(2)
    assert [reply.done() for reply in replies] == [False] * 3
    joined = [await reply for reply in replies]
    assert {each.generation_id for each in joined} == {1}
    # Members joined in the first two delays of 3 s, none in the third.
    assert setup.clock.monotonic() - started == pytest.approx(9, abs=0.01)


@in_virtual_time(initial_rebalance_delay_ms=3000)
async def test_the_initial_wait_ends_at_the_rebalance_timeout(setup: Setup) -> None:
    started = setup.clock.monotonic()
    first = join(setup, version=3, rebalance_timeout_ms=7000)
    later = []
    while not first.done():
        later.append(join(setup, version=3, rebalance_timeout_ms=7000))
        await asyncio.sleep(1)
    assert setup.clock.monotonic() - started == pytest.approx(7, abs=1.01)


@in_virtual_time(initial_rebalance_delay_ms=0)
async def test_a_rebalance_waits_as_long_as_its_most_patient_member_asks_for(
    setup: Setup,
) -> None:
    short: dict[str, Any] = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 10_000}
    (leader,) = await form(setup, 1, **short)
    other = join(setup, await new_id(setup), **short | {"rebalance_timeout_ms": 40_000})
    joined = [await join(setup, leader.member_id, **short), await other]
    for reply in [sync(setup, joined[0], {}), sync(setup, joined[1])]:
        assert (await reply).error_code == 0
    started = setup.clock.monotonic()
    again = await join(setup, leader.member_id, protocols=(("range", b"other"),), **short)
    assert (again.error_code, len(again.members)) == (0, 1)
    assert setup.clock.monotonic() - started == pytest.approx(40, abs=0.01)


@in_virtual_time(initial_rebalance_delay_ms=3000)
async def test_one_member_waits_the_delay_once(setup: Setup) -> None:
    started = setup.clock.monotonic()
    await join(setup, await new_id(setup))
    assert setup.clock.monotonic() - started == pytest.approx(3, abs=0.01)


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
async def test_an_id_of_one_group_is_unknown_in_another(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    pending_id = await new_id(setup)
    waiting = [join(setup, leader.member_id), join(setup, follower.member_id)]
    await join(setup, await new_id(setup, group="other"), group="other")
    assert (await join(setup, pending_id, group="other")).error_code == UNKNOWN_MEMBER
    await leave(setup, (pending_id, None), group="other")
    before = setup.clock.monotonic()
    waiting.append(join(setup, pending_id))
    assert {(await reply).error_code for reply in waiting} == {0}
    assert setup.clock.monotonic() == before


@in_virtual_time()
async def test_a_rebalance_waits_for_pending_members(setup: Setup) -> None:
    leader, follower = await form(setup, 2)
    member_id = await new_id(setup)
    again = join(setup, leader.member_id)
    follower_again = join(setup, follower.member_id)
    await asyncio.sleep(1)
    assert not again.done()
    assert (await leave(setup, (member_id, None))).members[0].error_code == 0
    assert (await again).generation_id == leader.generation_id + 1
    await follower_again


@in_virtual_time()
async def test_an_id_that_is_not_used_expires(setup: Setup) -> None:
    member_id = await new_id(setup)
    await asyncio.sleep(10.1)
    assert (await join(setup, member_id)).error_code == UNKNOWN_MEMBER
    assert setup.coordinator._host.shard(0).state.classic == {}


@in_virtual_time()
async def test_an_abandoned_first_rebalance_leaves_an_empty_group(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    await asyncio.sleep(11)
    group = setup.coordinator._host.shard(0).state.classic[GROUP]
    assert (group.state, group.generation) == ("Empty", joined.generation_id + 1)
    assert setup.coordinator._host.shard(0).state.classic.stored[GROUP].members == []


@in_virtual_time()
async def test_a_flood_of_long_names_is_bounded_by_its_bytes(setup: Setup) -> None:
    shard = setup.coordinator._host.shard(0)
    request = JoinGroupRequest(session_timeout_ms=10_000, protocol_type="consumer")
    request.protocols = [JoinGroupRequestProtocol(name="range")]
    now = setup.coordinator._host.now()
    for i in range(100):
        request.group_id = f"{i:032000}"
        shard.join(now, Join.of(request, 9, "c" * 32_000, "/127.0.0.1", lambda response: None))
    kept = list(shard.state.classic.values())
    assert 0 < sum(len(group.pending_joins) for group in kept) == len(kept)
    assert len(kept) * 32_000 <= PENDING_BYTES_MAX
    await join(setup)
    await asyncio.sleep(11)
    assert shard.state.classic == {}
    assert shard.state.pending._size == 0


@in_virtual_time()
async def test_a_flood_of_first_joins_costs_nothing(setup: Setup) -> None:
    """KIP-394; half of the ids are in one group, the others in a group each."""
    shard = setup.coordinator._host.shard(0)
    codes = set()
    request = JoinGroupRequest(session_timeout_ms=10_000, protocol_type="consumer")
    request.protocols = [JoinGroupRequestProtocol(name="range")]

    def reply(response: JoinGroupResponse) -> None:
        codes.add(response.error_code)

    now = setup.coordinator._host.now()
    for i in range(6 * PENDING_MAX):
        request.group_id = f"flood-{i}" if i % 2 else "flood"
        decision = shard.join(now, Join.of(request, 9, "client", "/127.0.0.1", reply))
        assert not decision.records
    assert codes == {ErrorCode.MEMBER_ID_REQUIRED}
    assert len(shard.state.pending) == PENDING_MAX
    assert len(shard.state.classic) == PENDING_MAX // 2 + 1
    assert sum(len(group.pending_joins) for group in shard.state.classic.values()) == PENDING_MAX
    assert len(shard.state.deadlines._heap) <= 3 * PENDING_MAX
    assert setup.coordinator.groups_owned == []
    await join(setup)
    await asyncio.sleep(11)
    assert shard.state.classic == {}
    assert len(shard.state.pending) == 0
    assert len(shard.state.deadlines) == 1, "only the check for expired offsets"
    assert setup.log.appends == 0


@in_virtual_time()
async def test_a_member_displaced_by_a_flood_of_ids_asks_again(setup: Setup) -> None:
    member_id = await new_id(setup)
    for _ in range(PENDING_MAX):
        await join(setup, group="flood")
    assert (await join(setup, member_id)).error_code == UNKNOWN_MEMBER
    assert (await join(setup, await new_id(setup))).error_code == 0


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
async def test_a_new_member_interrupts_a_generation_without_assignment(setup: Setup) -> None:
    leader = await join(setup, await new_id(setup))
    second_id = await new_id(setup)
    waiting = sync(setup, leader, {}, generation_id=leader.generation_id)
    newcomer = join(setup, second_id)
    code = (await waiting).error_code
    assert code in (0, ErrorCode.REBALANCE_IN_PROGRESS)
    again = join(setup, leader.member_id)
    assert (await newcomer).generation_id == (await again).generation_id == 2


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


@in_virtual_time(new_member_join_timeout_ms=60_000)
async def test_a_new_member_does_not_wait_longer_than_the_limit_for_new_members(
    setup: Setup,
) -> None:
    """Its client may no longer exist, but would be a member of the next generation."""
    patient: dict[str, Any] = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 1_000_000}
    (leader,) = await form(setup, 1, **patient)
    newcomer = join(setup, await new_id(setup), **patient)
    started = setup.clock.monotonic()
    while not newcomer.done():
        await asyncio.sleep(5)
        assert await heartbeat(setup, leader) == ErrorCode.REBALANCE_IN_PROGRESS
        assert setup.clock.monotonic() - started < 100
    assert (await newcomer).error_code == UNKNOWN_MEMBER
    assert setup.clock.monotonic() - started == pytest.approx(60, abs=5)


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
    made = Join.of(request, 1, "client", "/127.0.0.1", lambda response: None)
    assert made.rebalance_timeout_ms == taken
