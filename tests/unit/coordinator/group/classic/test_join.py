from __future__ import annotations

from coordinator_members import form, heartbeat, join, leave, new_id, sync
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.member import JoinRefusal

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
async def test_errors_have_an_empty_protocol_name_before_it_is_nullable(setup: Setup) -> None:
    for version, name in ((6, ""), (7, None)):
        refused = await join(setup, "stranger", version=version)
        assert refused.protocol_name == name


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
