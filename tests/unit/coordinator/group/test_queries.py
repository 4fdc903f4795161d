"""Reads of a shard: the protocol of a group decides its description and its offsets."""

from __future__ import annotations

import asyncio

import pytest

from consumer_members import Consumer
from coordinator_members import GROUP, commit_codes, form, join, leave, new_id
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.queries import GroupFilter, Queries
from lakelog.protocol.groups import DescribedGroup, DescribeGroupsRequest, ListGroupsRequest
from lakelog.protocol.offsets import OffsetFetchRequestGroup

ORDERS = ("orders", 0)


def _queries(setup: Setup) -> Queries:
    return setup.coordinator._host.shard(0).queries


@in_virtual_time()
async def test_each_description_rejects_groups_of_the_other_protocol(setup: Setup) -> None:
    await form(setup, 1, group="classic")
    await Consumer(setup, "m", group="modern").beat()
    queries = _queries(setup)
    refused = queries.describe("modern", 6)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == "Group modern is not a classic group."
    other = queries.describe_consumer("classic")
    assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert other.error_message == "Group classic is not a consumer group."


@in_virtual_time()
async def test_a_group_that_has_only_offsets_is_a_classic_one(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7}, group="offsets")
    queries = _queries(setup)
    assert queries.describe("offsets", 6).group_state == "Empty"
    assert queries.describe_consumer("offsets").error_message == (
        "Group offsets is not a consumer group."
    )


@in_virtual_time()
async def test_a_group_with_only_pending_member_ids_is_unknown_everywhere(setup: Setup) -> None:
    await new_id(setup, group="asked")
    queries = _queries(setup)
    assert queries.describe("asked", 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert queries.describe_consumer("asked").error_message == "Group asked not found."
    assert list(queries.list_groups(GroupFilter((), ()))) == []
    assert list(queries.progress()) == []


@in_virtual_time()
async def test_a_group_with_members_and_offsets_is_listed_once(setup: Setup) -> None:
    (member,) = await form(setup, 1, group="classic")
    await commit_codes(setup, {ORDERS: 7}, member, group="classic")
    await commit_codes(setup, {ORDERS: 7}, group="modern")
    await Consumer(setup, "m", group="modern").beat()
    listed = {
        each.group_id: each.group_type for each in _queries(setup).list_groups(GroupFilter((), ()))
    }
    assert listed == {"classic": "classic", "modern": "consumer"}
    assert len(list(_queries(setup).progress())) == 2


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        ("m", 1, None),
        (None, -1, None),
        ("m", 77, ErrorCode.STALE_MEMBER_EPOCH),
        ("unknown", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_reads_offsets_in_its_epoch_only(
    member_id: str | None, epoch: int, code: ErrorCode | None
) -> None:
    """KIP-848; requests without a member come from administrators and older clients."""

    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        await Consumer(setup, "m").beat()
        request = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch)
        if code is None:
            shard = setup.coordinator._host.shard(0)
            assert shard.queries.offsets_for(request) is shard.state.offsets
            return
        with pytest.raises(KafkaError) as raised:
            _queries(setup).offsets_for(request)
        assert raised.value.code is code

    scenario()


async def _describe(setup: Setup, *groups: str, version: int = 6) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(groups=list(groups))
    response = await setup.coordinator.admin.describe_groups(request, version)
    described: list[DescribedGroup] = response.groups
    return described


async def _list(
    setup: Setup, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> set[str]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    response = await setup.coordinator.admin.list_groups(request)
    assert response.error_code == 0
    return {each.group_id for each in response.groups}


@in_virtual_time()
async def test_a_stable_group_is_described_with_its_assignment(setup: Setup) -> None:
    leader, follower = await form(setup, 2, client_id="app")
    (group,) = await _describe(setup, GROUP)
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert {each.member_id for each in group.members} == {leader.member_id, follower.member_id}
    for each in group.members:
        assert (each.client_id, each.client_host) == ("app", "/127.0.0.1")
        assert bytes(each.member_metadata) == b"meta"
        assert bytes(each.member_assignment) == each.member_id.encode()


@in_virtual_time()
async def test_the_states_of_a_group(setup: Setup) -> None:
    first = await join(setup, await new_id(setup))
    assert (await _describe(setup, GROUP))[0].group_state == "CompletingRebalance"
    join(setup, version=3)
    (group,) = await _describe(setup, GROUP)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert {bytes(each.member_assignment) for each in group.members} == {b""}
    await leave(setup, *((each.member_id, None) for each in group.members))
    (group,) = await _describe(setup, GROUP)
    assert (group.group_state, group.members) == ("Empty", [])
    assert first.error_code == 0


@in_virtual_time()
async def test_a_group_that_is_not_there(setup: Setup) -> None:
    await new_id(setup, group="asked")
    for group_id in ("nobody", "asked"):
        (older,) = await _describe(setup, group_id, version=5)
        assert (older.error_code, older.group_state) == (0, "Dead")
        (newer,) = await _describe(setup, group_id)
        assert (newer.error_code, newer.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
        assert newer.error_message


@in_virtual_time()
async def test_a_group_that_has_only_offsets_is_empty(setup: Setup) -> None:
    await commit_codes(setup, {("orders", 0): 1})
    groups = await _describe(setup, GROUP, "nobody")
    assert [(each.group_id, each.group_state) for each in groups] == [
        (GROUP, "Empty"),
        ("nobody", "Dead"),
    ]
    assert await _list(setup) == {GROUP}


@in_virtual_time()
async def test_list_groups_filters_by_state_and_type(setup: Setup) -> None:
    await form(setup, 1, group="stable")
    await join(setup, await new_id(setup, group="completing"), group="completing")
    await commit_codes(setup, {("orders", 0): 1}, group="offsets")
    await new_id(setup, group="asked")
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
        assert await _list(setup, states, types) == listed, (states, types)
    response = await setup.coordinator.admin.list_groups(ListGroupsRequest())
    shown = {
        each.group_id: (each.protocol_type, each.group_state, each.group_type)
        for each in response.groups
    }
    assert shown["stable"] == ("consumer", "Stable", "classic")
    assert shown["offsets"] == ("", "Empty", "classic")


@in_virtual_time(partitions=3)
async def test_groups_of_every_partition_are_listed(setup: Setup) -> None:
    names = {f"group-{i}" for i in range(12)}
    for name in names:
        await commit_codes(setup, {("orders", 0): 1}, group=name)
    assert {setup.coordinator.partition_for(name) for name in names} == {0, 1, 2}
    assert await _list(setup) == names
    setup.coordinator.unload_partition(1)
    assert await _list(setup) == {n for n in names if setup.coordinator.partition_for(n) != 1}


@pytest.mark.parametrize("version", [5, 6])
def test_while_loading_and_where_not_owned(version: int) -> None:
    async def scenario(setup: Setup) -> None:
        await form(setup, 1)
        setup.coordinator.close()
        (group,) = await _describe(setup, GROUP, version=version)
        assert group.error_code == ErrorCode.NOT_COORDINATOR
        assert await _list(setup) == set()
        setup.log.read_barrier = asyncio.Event()
        loading = asyncio.ensure_future(setup.coordinator.load_partition(0, 0))
        await asyncio.sleep(0.1)
        (group,) = await _describe(setup, GROUP, version=version)
        assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        response = await setup.coordinator.admin.list_groups(ListGroupsRequest())
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        setup.log.read_barrier.set()
        await loading
        assert await _list(setup) == {GROUP}

    in_virtual_time()(scenario)()
