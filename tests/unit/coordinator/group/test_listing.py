from __future__ import annotations

import asyncio

import pytest

from coordinator_members import GROUP, commit_codes, form, join, leave, new_id
from coordinator_world import World, in_world
from lakelog.base.errors import ErrorCode
from lakelog.protocol.describe_groups import DescribedGroup, DescribeGroupsRequest
from lakelog.protocol.list_groups import ListGroupsRequest


async def _describe(world: World, *groups: str, version: int = 6) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(groups=list(groups))
    response = await world.coordinator.admin.describe_groups(request, version)
    described: list[DescribedGroup] = response.groups
    return described


async def _list(
    world: World, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> set[str]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    response = await world.coordinator.admin.list_groups(request)
    assert response.error_code == 0
    return {each.group_id for each in response.groups}


@in_world()
async def test_a_stable_group_is_described_with_its_assignment(world: World) -> None:
    leader, follower = await form(world, 2, client_id="app")
    (group,) = await _describe(world, GROUP)
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert {each.member_id for each in group.members} == {leader.member_id, follower.member_id}
    for each in group.members:
        assert (each.client_id, each.client_host) == ("app", "/127.0.0.1")
        assert bytes(each.member_metadata) == b"meta"
        assert bytes(each.member_assignment) == each.member_id.encode()


@in_world()
async def test_the_states_of_a_group(world: World) -> None:
    first = await join(world, await new_id(world))
    assert (await _describe(world, GROUP))[0].group_state == "CompletingRebalance"
    join(world, version=3)
    (group,) = await _describe(world, GROUP)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert {bytes(each.member_assignment) for each in group.members} == {b""}
    await leave(world, *((each.member_id, None) for each in group.members))
    (group,) = await _describe(world, GROUP)
    assert (group.group_state, group.members) == ("Empty", [])
    assert first.error_code == 0


@in_world()
async def test_a_group_that_is_not_there(world: World) -> None:
    await new_id(world, group="asked")
    for group_id in ("nobody", "asked"):
        (older,) = await _describe(world, group_id, version=5)
        assert (older.error_code, older.group_state) == (0, "Dead")
        (newer,) = await _describe(world, group_id)
        assert (newer.error_code, newer.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
        assert newer.error_message


@in_world()
async def test_a_group_that_has_only_offsets_is_empty(world: World) -> None:
    await commit_codes(world, {("orders", 0): 1})
    groups = await _describe(world, GROUP, "nobody")
    assert [(each.group_id, each.group_state) for each in groups] == [
        (GROUP, "Empty"),
        ("nobody", "Dead"),
    ]
    assert await _list(world) == {GROUP}


@in_world()
async def test_list_groups_filters_by_state_and_type(world: World) -> None:
    await form(world, 1, group="stable")
    await join(world, await new_id(world, group="completing"), group="completing")
    await commit_codes(world, {("orders", 0): 1}, group="offsets")
    await new_id(world, group="asked")
    everything = {"stable", "completing", "offsets"}
    for states, types, listed in (
        ((), (), everything),
        (("Stable",), (), {"stable"}),
        (("stable", "EMPTY"), (), {"stable", "offsets"}),
        (("CompletingRebalance",), (), {"completing"}),
        (("Dead",), (), set()),
        ((), ("classic",), everything),
        ((), ("Classic",), everything),
        ((), ("consumer",), set()),
        (("Stable",), ("consumer",), set()),
        (("Stable",), ("consumer", "classic"), {"stable"}),
    ):
        assert await _list(world, states, types) == listed, (states, types)
    response = await world.coordinator.admin.list_groups(ListGroupsRequest())
    shown = {
        each.group_id: (each.protocol_type, each.group_state, each.group_type)
        for each in response.groups
    }
    assert shown["stable"] == ("consumer", "Stable", "classic")
    assert shown["offsets"] == ("", "Empty", "classic")


@in_world(partitions=3)
async def test_groups_of_every_partition_are_listed(world: World) -> None:
    names = {f"group-{i}" for i in range(12)}
    for name in names:
        await commit_codes(world, {("orders", 0): 1}, group=name)
    assert {world.coordinator.partition_for(name) for name in names} == {0, 1, 2}
    assert await _list(world) == names
    world.coordinator.unload_partition(1)
    assert await _list(world) == {n for n in names if world.coordinator.partition_for(n) != 1}


@pytest.mark.parametrize("version", [5, 6])
def test_while_loading_and_where_not_owned(version: int) -> None:
    async def scenario(world: World) -> None:
        await form(world, 1)
        world.coordinator.close()
        (group,) = await _describe(world, GROUP, version=version)
        assert group.error_code == ErrorCode.NOT_COORDINATOR
        assert await _list(world) == set()
        world.log.read_gate = asyncio.Event()
        loading = asyncio.ensure_future(world.coordinator.load_partition(0))
        await asyncio.sleep(0.1)
        (group,) = await _describe(world, GROUP, version=version)
        assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        response = await world.coordinator.admin.list_groups(ListGroupsRequest())
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.log.read_gate.set()
        await loading
        assert await _list(world) == {GROUP}

    in_world()(scenario)()
