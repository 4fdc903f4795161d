"""Heartbeats and verdicts of a member of a group of KIP-848."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MemberAssignment,
    MemberPartitions,
)
from scripted_clients import Answer, ScriptedWorld, scripted_world
from simulator.checkers.laws import Law
from simulator.clients.groups.consumer_member import ConsumerMember
from simulator.clients.groups.member import DYNAMIC, Role

PLACES = [("topic", 0), ("topic", 1)]
TOPIC_ID = b"t" * 16


def assigned(*indexes: int, epoch: int = 1) -> ConsumerGroupHeartbeatResponse:
    partitions = [MemberPartitions(topic_id=TOPIC_ID, partitions=list(indexes))]
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, assignment=MemberAssignment(topic_partitions=partitions)
    )


def failed(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)


def member(world: ScriptedWorld, name: str = "member", role: Role = DYNAMIC) -> ConsumerMember:
    made = ConsumerMember(world.context, name, "team", PLACES, role)
    made._topic_ids = {TOPIC_ID: "topic"}
    made._begin()
    return made


def beat(
    world: ScriptedWorld, made: ConsumerMember, answer: Answer
) -> tuple[bool, ConsumerGroupHeartbeatRequest]:
    """Return whether the member stays, and its first heartbeat."""
    broker = world.answer(made, (ConsumerGroupHeartbeatRequest, answer))
    stays = world.play(made._beat())
    return stays, broker.sent(ConsumerGroupHeartbeatRequest)[0]


def test_a_heartbeat_reports_the_epoch_and_the_owned_partitions() -> None:
    with scripted_world() as world:
        made = member(world)
        stays, joining = beat(world, made, assigned(0, 1, epoch=4))
        assert stays
        assert (joining.member_epoch, joining.topic_partitions) == (0, [])
        unchanged = ConsumerGroupHeartbeatResponse(member_epoch=5)
        _, owning = beat(world, made, unchanged)
        assert owning.member_epoch == 4
        (owned,) = owning.topic_partitions or []
        assert (owned.topic_id, owned.partitions) == (TOPIC_ID, [0, 1])
        assert made.owned == frozenset(PLACES)


@pytest.mark.parametrize("given_up", [False, True])
def test_a_partition_has_one_owner_at_a_time(given_up: bool) -> None:
    with scripted_world() as world:
        one, two = member(world, "one"), member(world, "two")
        beat(world, one, assigned(0, 1))
        # Time passes before each heartbeat, and would end the first lease.
        for lease in world.members._leases["team"].values():
            lease.until = 3600.0
        if given_up:
            world.answer(one, (ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse()))
            world.play(one._leave())
        beat(world, two, assigned(1))
        assert world.findings.broken == (set() if given_up else {Law.ONE_OWNER})


def test_a_lease_ends_with_the_session() -> None:
    with scripted_world() as world:
        beat(world, member(world, "one"), assigned(0, 1))
        beat(world, member(world, "two"), assigned(0, 1))  # 10 s later
        assert not world.findings.violations


@pytest.mark.parametrize(
    ("code", "stays", "broken"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, False, set()),
        (ErrorCode.FENCED_MEMBER_EPOCH, False, set()),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, set()),
        (ErrorCode.UNRELEASED_INSTANCE_ID, True, {Law.ANSWERS}),  # the member is dynamic
        (ErrorCode.INVALID_REGULAR_EXPRESSION, True, {Law.ANSWERS}),
    ],
)
def test_errors(code: ErrorCode, stays: bool, broken: set[Law]) -> None:
    with scripted_world() as world:
        assert beat(world, member(world), failed(code))[0] is stays
        assert world.findings.broken == broken


@pytest.mark.parametrize(("delay_s", "stays"), [(0.1, True), (7.0, False)])
def test_without_a_response_a_member_stays_until_its_session_ends(
    delay_s: float, stays: bool
) -> None:
    with scripted_world() as world:
        made = member(world)
        world.answer(made, (ConsumerGroupHeartbeatRequest, None)).delay_s = delay_s
        assert world.play(made._beat()) is stays


def test_a_replaced_static_member_may_send_no_heartbeat() -> None:
    with scripted_world() as world:
        made = member(world, role=Role("one"))
        beat(world, made, assigned(0))
        made.was_fenced(made._member_id, 0)
        beat(world, made, assigned(0))
        assert world.findings.broken == {Law.FENCED_INSTANCE}


def test_a_new_process_joins_as_another_member_without_partitions() -> None:
    with scripted_world() as world:
        made = member(world)
        beat(world, made, assigned(0))
        before = made._member_id
        made._begin()
        assert made._member_id != before
        assert (made._epoch, made.owned) == (0, frozenset())


def test_members_subscribe_by_name_or_by_a_regular_expression() -> None:
    with scripted_world() as world:
        made = member(world)
        for by_regex, expected in ((False, (["topic"], None)), (True, (None, "topi[c]"))):
            made._by_regex = by_regex
            request = made._heartbeat()
            assert (request.subscribed_topic_names, request.subscribed_topic_regex) == expected


def test_only_static_members_leave_for_a_while() -> None:
    epochs: dict[Role, set[int]] = {}
    with scripted_world() as world:
        for role in (DYNAMIC, Role("one")):
            made = member(world, role=role)
            answer = ConsumerGroupHeartbeatResponse()
            broker = world.answer(made, (ConsumerGroupHeartbeatRequest, answer))
            for _ in range(20):
                world.play(made._leave())
            left = broker.sent(ConsumerGroupHeartbeatRequest)
            epochs[role] = {request.member_epoch for request in left}
    assert epochs == {DYNAMIC: {-1}, Role("one"): {-1, -2}}
