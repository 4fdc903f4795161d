"""Joins, assignments and verdicts of a member of a classic group."""

from __future__ import annotations

import json

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from scripted_clients import Answer, ScriptedConnection, ScriptedWorld, scripted_world
from simulator.checkers.laws import Law
from simulator.clients.groups.classic_member import ClassicMember
from simulator.clients.groups.member import DYNAMIC, Role

PLACES = [("topic", index) for index in range(3)]


def joined(
    generation: int = 1, *, member: str = "a", leader: str = "a", members: tuple[str, ...] = ()
) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation,
        protocol_name="plain",
        leader=leader,
        member_id=member,
        members=[JoinGroupResponseMember(member_id=each) for each in members],
    )


def synced(*indexes: int) -> SyncGroupResponse:
    assignment = json.dumps([("topic", index) for index in indexes]).encode()
    return SyncGroupResponse(assignment=assignment)


def member(
    world: ScriptedWorld,
    *joins: Answer,
    sync: Answer = None,
    name: str = "member",
    role: Role = DYNAMIC,
) -> tuple[ClassicMember, ScriptedConnection]:
    made = ClassicMember(world.context, name, "team", PLACES, role)
    broker = world.answer(
        made,
        *((JoinGroupRequest, each) for each in joins),
        (SyncGroupRequest, sync),
        (LeaveGroupRequest, LeaveGroupResponse()),
    )
    return made, broker


def test_the_leader_divides_all_partitions_among_all_members() -> None:
    with scripted_world() as world:
        join = joined(members=("b", "a"))
        made, broker = member(world, join, sync=synced(0, 2))
        assert world.play(made._join()) == [("topic", 0), ("topic", 2)]
        (request,) = broker.sent(SyncGroupRequest)
        shares = {
            share.member_id: [index for _, index in json.loads(bytes(share.assignment))]
            for share in request.assignments
        }
        assert shares == {"a": [0, 2], "b": [1]}


def test_a_follower_sends_no_assignment() -> None:
    with scripted_world() as world:
        made, broker = member(world, joined(leader="b"), sync=synced())
        assert world.play(made._join()) == []
        (request,) = broker.sent(SyncGroupRequest)
        assert request.assignments == []


def test_a_member_joins_again_with_the_id_that_it_was_assigned() -> None:
    with scripted_world() as world:
        required = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="a")
        made, broker = member(world, required, joined(), sync=synced())
        assert world.play(made._join()) is None
        assert world.play(made._join()) == []
        assert [request.member_id for request in broker.sent(JoinGroupRequest)] == ["", "a"]
        assert not world.findings.violations


@pytest.mark.parametrize(("generation", "right"), [(5, True), (6, True), (4, False)])
def test_a_generation_is_not_reused(generation: int, right: bool) -> None:
    with scripted_world() as world:
        world.members.assigned("team", 5, "b", [])
        made, _ = member(world, joined(generation), sync=synced())
        world.play(made._join())
        assert world.findings.broken == (set() if right else {Law.GENERATION_FORWARD})


def test_a_partition_has_one_owner_in_a_generation() -> None:
    with scripted_world() as world:
        one, _ = member(world, joined(member="a"), sync=synced(0, 1), name="one")
        two, _ = member(world, joined(member="b"), sync=synced(1, 2), name="two")
        world.play(one._join())
        assert not world.findings.violations
        world.play(two._join())
        assert world.findings.broken == {Law.GENERATION_OWNER}


@pytest.mark.parametrize(
    ("code", "keeps_id", "broken"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, False, set()),
        (ErrorCode.REBALANCE_IN_PROGRESS, True, set()),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True, set()),
        (ErrorCode.FENCED_INSTANCE_ID, False, {Law.ANSWERS}),  # the member is dynamic
        (ErrorCode.INVALID_GROUP_ID, True, {Law.ANSWERS}),
    ],
)
def test_errors(code: ErrorCode, keeps_id: bool, broken: set[Law]) -> None:
    with scripted_world() as world:
        made, _ = member(world)
        made._member_id = "a"
        world.answer(made, (HeartbeatRequest, HeartbeatResponse(error_code=code)))
        request = HeartbeatRequest(group_id="team", generation_id=1, member_id="a")
        assert world.play(made._call("Heartbeat", request, 4, 5.0)) is None
        assert made._member_id == ("a" if keeps_id else "")
        assert world.findings.broken == broken


@pytest.mark.parametrize("loading", [False, True])
def test_a_replaced_static_member_gets_heartbeats_only_while_the_group_loads(
    loading: bool,
) -> None:
    with scripted_world() as world:
        made, _ = member(world, role=Role("one"))
        made._member_id = "a"
        made.was_fenced("a", 0)
        if loading:
            world.members.loads("team", 60.0)
        world.answer(made, (HeartbeatRequest, HeartbeatResponse()))
        request = HeartbeatRequest(group_id="team", generation_id=1, member_id="a")
        world.play(made._call("Heartbeat", request, 4, 5.0))
        assert world.findings.broken == (set() if loading else {Law.FENCED_INSTANCE})


@pytest.mark.parametrize(("role", "member_id"), [(DYNAMIC, "a"), (Role("one"), "")])
def test_a_static_member_leaves_by_its_instance_id(role: Role, member_id: str) -> None:
    with scripted_world() as world:
        made, broker = member(world, role=role)
        made._member_id = "a"
        world.play(made._leave())
        (request,) = broker.sent(LeaveGroupRequest)
        (leaving,) = request.members
        assert (leaving.member_id, leaving.group_instance_id) == (member_id, role.instance)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_successor_ends_the_transaction_that_may_be_open(is_open: bool) -> None:
    with scripted_world() as world:
        made, _ = member(world)
        made._transactions.is_open = is_open
        assert made.may_stay_away is not is_open
        assert made.replaced()._transactions.is_open is is_open
