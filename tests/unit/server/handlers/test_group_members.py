from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.group_members import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from lakelog.protocol.groups import DescribeGroupsRequest
from lakelog.server.handlers.group_members import (
    consumer_group_heartbeat,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from lakelog.server.handlers.groups import describe_groups
from memory_broker import CLIENT_ID, PEER, MemoryBroker
from memory_clients import GROUP, join, join_and_sync, join_request

E = ErrorCode


def test_before_version_4_a_client_joins_without_a_member_id(coordinators: MemoryBroker) -> None:
    """KIP-394 keeps clients that never return from being members."""
    assert coordinators.ask(join_group, join_request(group="old"), 3).error_code == E.NONE
    required = coordinators.ask(join_group, join_request(group="new"), 4)
    assert (required.error_code, required.members) == (E.MEMBER_ID_REQUIRED, [])
    again = coordinators.ask(join_group, join_request(required.member_id, "new"), 4)
    assert (again.error_code, again.leader) == (E.NONE, required.member_id)


def test_the_coordinator_knows_the_name_and_the_host_of_the_client(
    coordinators: MemoryBroker,
) -> None:
    joined = join_and_sync(coordinators)
    assert joined.member_id.startswith(CLIENT_ID)
    request = DescribeGroupsRequest(groups=[GROUP])
    (group,) = coordinators.ask(describe_groups, request, 6).groups
    (member,) = group.members
    assert (member.client_id, member.client_host) == (CLIENT_ID, f"/{PEER[0]}")


def test_a_second_member_waits_for_the_first(coordinators: MemoryBroker) -> None:
    first = join_and_sync(coordinators)
    given = coordinators.ask(join_group, join_request(), 9)
    waiting = coordinators.start(join_group, join_request(given.member_id), 9)
    coordinators.pass_time(1)
    assert not waiting.is_answered
    again = coordinators.ask(join_group, join_request(first.member_id), 9)
    assert {again.generation_id, waiting.response().generation_id} == {first.generation_id + 1}
    assert len(again.members) == 2


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, E.INVALID_SESSION_TIMEOUT),
        ({"member_id": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_bad_request_is_an_error(
    coordinators: MemoryBroker, change: dict[str, object], code: ErrorCode
) -> None:
    join(coordinators)
    request = join_request()
    for name, value in change.items():
        setattr(request, name, value)
    response = coordinators.ask(join_group, request, 9)
    assert (response.error_code, response.generation_id) == (code, -1)


def test_before_the_groups_are_loaded_no_group_has_a_coordinator(world: MemoryBroker) -> None:
    response = world.ask(join_group, join_request(), 9)
    assert response.error_code == E.NOT_COORDINATOR


def request(
    member_id: str, generation: int, assignments: dict[str, bytes] | None = None
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=assignment)
            for member, assignment in (assignments or {}).items()
        ],
    )


def test_members_get_the_assignments_of_the_leader(coordinators: MemoryBroker) -> None:
    first = join(coordinators)
    given = coordinators.ask(join_group, join_request(), 9)
    joining = coordinators.start(join_group, join_request(given.member_id), 9)
    leader = coordinators.ask(join_group, join_request(first.member_id), 9)
    other = joining.response()
    waiting = coordinators.start(sync_group, request(other.member_id, other.generation_id), 5)
    assert not waiting.is_answered
    plan = {leader.member_id: b"first", other.member_id: b"second"}
    own = coordinators.ask(sync_group, request(leader.member_id, leader.generation_id, plan), 5)
    assert (own.assignment, waiting.response().assignment) == (b"first", b"second")


@pytest.mark.parametrize(("version", "named"), [(4, None), (5, "range")])
def test_the_protocol_is_named_from_version_5_on(
    coordinators: MemoryBroker, version: int, named: str | None
) -> None:
    joined = join(coordinators)
    asked = request(joined.member_id, joined.generation_id, {joined.member_id: b"mine"})
    response = coordinators.ask(sync_group, asked, version)
    assert (response.assignment, response.protocol_name) == (b"mine", named)


def test_a_stranger_and_an_old_generation_are_rejected(coordinators: MemoryBroker) -> None:
    joined = join(coordinators)
    stranger = coordinators.ask(sync_group, request("unknown", joined.generation_id), 5)
    assert stranger.error_code == E.UNKNOWN_MEMBER_ID
    late = coordinators.ask(sync_group, request(joined.member_id, joined.generation_id - 1), 5)
    assert late.error_code == E.ILLEGAL_GENERATION


def test_another_protocol_than_the_group_s_is_rejected(coordinators: MemoryBroker) -> None:
    joined = join(coordinators)
    asked = request(joined.member_id, joined.generation_id)
    asked.protocol_type, asked.protocol_name = "consumer", "sticky"
    response = coordinators.ask(sync_group, asked, 5)
    assert response.error_code == E.INCONSISTENT_GROUP_PROTOCOL


def beat(world: MemoryBroker, member_id: str, generation: int, version: int = 4) -> int:
    request = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
    return world.ask(heartbeat, request, version).error_code


@pytest.mark.parametrize("version", [0, 4])
def test_a_member_lives_while_it_sends_heartbeats(coordinators: MemoryBroker, version: int) -> None:
    joined = join_and_sync(coordinators)
    member = joined.member_id, joined.generation_id
    for _ in range(3):
        coordinators.pass_time(9)
        assert beat(coordinators, *member, version) == E.NONE
    coordinators.pass_time(11)
    assert beat(coordinators, *member, version) == E.UNKNOWN_MEMBER_ID


def test_a_heartbeat_reports_a_rebalance(coordinators: MemoryBroker) -> None:
    joined = join_and_sync(coordinators)
    given = coordinators.ask(join_group, join_request(), 9)
    coordinators.start(join_group, join_request(given.member_id), 9)
    member = joined.member_id, joined.generation_id
    assert beat(coordinators, *member) == E.REBALANCE_IN_PROGRESS


def test_strangers_and_other_generations_are_rejected(coordinators: MemoryBroker) -> None:
    joined = join_and_sync(coordinators)
    assert beat(coordinators, "unknown", joined.generation_id) == E.UNKNOWN_MEMBER_ID
    assert beat(coordinators, joined.member_id, 99) == E.ILLEGAL_GENERATION


def test_without_the_group_s_partition_there_is_no_coordinator(world: MemoryBroker) -> None:
    assert beat(world, "m", 1) == E.NOT_COORDINATOR


def test_before_version_3_one_member_leaves(coordinators: MemoryBroker) -> None:
    joined = join_and_sync(coordinators)
    request = LeaveGroupRequest(group_id=GROUP, member_id=joined.member_id)
    assert coordinators.ask(leave_group, request, 2).error_code == E.NONE
    assert coordinators.ask(leave_group, request, 2).error_code == E.UNKNOWN_MEMBER_ID


def test_each_of_several_members_has_its_result(coordinators: MemoryBroker) -> None:
    joined = join_and_sync(coordinators)
    members = [
        MemberIdentity(member_id=joined.member_id),
        MemberIdentity(member_id="unknown"),
        MemberIdentity(member_id="", group_instance_id="no such instance"),
    ]
    response = coordinators.ask(leave_group, LeaveGroupRequest(group_id=GROUP, members=members), 5)
    assert response.error_code == E.NONE
    assert [(each.member_id, each.error_code) for each in response.members] == [
        (joined.member_id, E.NONE),
        ("unknown", E.UNKNOWN_MEMBER_ID),
        ("", E.UNKNOWN_MEMBER_ID),
    ]


def test_the_error_of_a_group_is_of_the_whole_request(world: MemoryBroker) -> None:
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="m")])
    response = world.ask(leave_group, request, 5)
    assert (response.error_code, response.members) == (E.NOT_COORDINATOR, [])


def beat_request(
    member_id: str = "member", epoch: int = 0, group: str = "consumers"
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )


def test_a_member_joins_and_gets_partitions(coordinators: MemoryBroker) -> None:
    response = coordinators.ask(consumer_group_heartbeat, beat_request(), 1)
    assert (response.error_code, response.member_id) == (E.NONE, "member")
    assert response.member_epoch > 0 and response.heartbeat_interval_ms > 0
    assert response.assignment is not None
    (topic,) = response.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (
        coordinators.broker.topics.topic_id("orders"),
        [0, 1],
    )


@pytest.mark.parametrize(("version", "code"), [(0, E.NONE), (1, E.INVALID_REQUEST)])
def test_from_version_1_on_the_client_chooses_its_member_id(
    coordinators: MemoryBroker, version: int, code: ErrorCode
) -> None:
    """KIP-1082: a repeated beat_request does not leave a second member behind."""
    response = coordinators.ask(consumer_group_heartbeat, beat_request(member_id=""), version)
    assert response.error_code == code
    assert bool(response.member_id) is (code is E.NONE)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (beat_request("unknown", 3), E.UNKNOWN_MEMBER_ID),
        (beat_request("member", 99), E.FENCED_MEMBER_EPOCH),
        (beat_request("member", -5), E.INVALID_REQUEST),
        (beat_request(group=""), E.INVALID_REQUEST),
    ],
)
def test_a_bad_heartbeat_is_an_error_with_a_message(
    coordinators: MemoryBroker, asked: ConsumerGroupHeartbeatRequest, code: ErrorCode
) -> None:
    coordinators.ask(consumer_group_heartbeat, beat_request(), 1)
    response = coordinators.ask(consumer_group_heartbeat, asked, 1)
    assert response.error_code == code
    assert response.error_message


def test_a_group_of_the_other_protocol_is_an_error(coordinators: MemoryBroker) -> None:
    """Its members' metadata is not of the consumer protocol, so it cannot be converted."""
    join_and_sync(coordinators)
    response = coordinators.ask(consumer_group_heartbeat, beat_request(group="readers"), 1)
    assert response.error_code == E.GROUP_ID_NOT_FOUND


def test_a_consumer_group_without_its_partition_has_no_coordinator(world: MemoryBroker) -> None:
    assert world.ask(consumer_group_heartbeat, beat_request(), 1).error_code == E.NOT_COORDINATOR
