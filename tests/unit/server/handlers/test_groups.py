from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.keys import partition_for
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from lakelog.server.handlers.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from memory_broker import CLIENT_ID, LOCAL, PEER, MemoryBroker
from memory_clients import GROUP, commit, join, join_and_sync, join_request
from memory_metadata import FAILED_CHANGES

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


def test_without_the_group_s_partition_a_heartbeat_has_no_coordinator(world: MemoryBroker) -> None:
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


GROUP_KEY, TRANSACTION, SHARE = range(3)
OTHER = 2


@pytest.mark.parametrize(
    ("kind", "topic"), [(GROUP_KEY, "__consumer_offsets"), (TRANSACTION, "__transaction_state")]
)
def test_the_coordinator_s_topic_is_created_on_first_use(
    world: MemoryBroker, kind: int, topic: str
) -> None:
    for _ in range(2):
        request = FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=kind)
        found = world.ask(find_coordinator, request, 6).coordinators
        assert [(each.key, each.node_id) for each in found] == [("a", 1), ("b", 1)]
        assert {(each.host, each.port) for each in found} == {LOCAL}
    assert world.partition(topic).is_online


@pytest.mark.parametrize(
    ("kind", "topic"), [(GROUP_KEY, "__consumer_offsets"), (TRANSACTION, "__transaction_state")]
)
def test_the_leader_of_a_key_s_partition_coordinates_it(kind: int, topic: str) -> None:
    settings = {"offsets_topic_num_partitions": "8", "transaction_state_log_num_partitions": "8"}
    with MemoryBroker(**settings) as world:
        keys = [f"key {number}" for number in range(40)]
        request = FindCoordinatorRequest(coordinator_keys=keys, key_type=kind)
        world.ask(find_coordinator, request, 6)
        world.register(OTHER, "other.example", 9093)
        for index in (1, 4):
            world.change_leader(topic, OTHER, (OTHER,), index=index)
        world.change_leader(topic, -1, (OTHER,), index=5)
        world.change_leader(topic, 3, (3,), index=6)
        found = world.ask(find_coordinator, request, 6).coordinators
        for key, each in zip(keys, found, strict=True):
            assert (each.node_id, each.host, each.port, each.error_code) == {
                1: (OTHER, "other.example", 9093, ErrorCode.NONE),
                4: (OTHER, "other.example", 9093, ErrorCode.NONE),
                5: (-1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
                6: (-1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            }.get(partition_for(key, 8), (1, *LOCAL, ErrorCode.NONE))
        assert {partition_for(key, 8) for key in keys} == set(range(8))


@pytest.mark.parametrize("version", [0, 3])
def test_before_version_4_a_request_has_one_key(world: MemoryBroker, version: int) -> None:
    response = world.ask(find_coordinator, FindCoordinatorRequest(key="readers"), version)
    assert (response.error_code, response.node_id) == (ErrorCode.NONE, 1)
    assert (response.host, response.port) == LOCAL


@pytest.mark.parametrize("kind", [SHARE, 7, -1])
def test_an_unknown_type_is_an_error(world: MemoryBroker, kind: int) -> None:
    request = FindCoordinatorRequest(key="k", key_type=kind)
    response = world.ask(find_coordinator, request, 3)
    assert (response.error_code, response.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    request = FindCoordinatorRequest(coordinator_keys=["k"], key_type=kind)
    (found,) = world.ask(find_coordinator, request, 4).coordinators
    assert (found.key, found.error_code) == ("k", ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_without_its_topic_there_is_no_coordinator(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.metadata.fault = fault
    request = FindCoordinatorRequest(coordinator_keys=["k"])
    (found,) = world.ask(find_coordinator, request, 6).coordinators
    assert (found.node_id, found.error_code) == (-1, code)


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ([], [], {GROUP, "offsets only"}),
        (["Stable"], [], {GROUP}),
        (["stable", "Empty"], [], {GROUP, "offsets only"}),
        (["Dead"], [], set()),
        ([], ["classic"], {GROUP, "offsets only"}),
        ([], ["consumer"], set()),
        (["Empty"], ["Classic"], {"offsets only"}),
    ],
)
def test_groups_are_filtered_by_state_and_type(
    coordinators: MemoryBroker, states: list[str], types: list[str], expected: set[str]
) -> None:
    join_and_sync(coordinators)
    commit(coordinators, 5, "offsets only")
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    response = coordinators.ask(list_groups, request, 5)
    assert {group.group_id for group in response.groups} == expected


def test_states_came_with_version_4_and_types_with_version_5(coordinators: MemoryBroker) -> None:
    join_and_sync(coordinators)
    found = {
        version: coordinators.ask(list_groups, ListGroupsRequest(), version).groups[0]
        for version in (3, 4, 5)
    }
    assert {version: group.group_state for version, group in found.items()} == {
        3: "",
        4: "Stable",
        5: "Stable",
    }
    assert [found[version].group_type.lower() for version in (4, 5)] == ["", "classic"]


def ask(
    world: MemoryBroker, *groups: str, version: int = 6, operations: bool = False
) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)
    return world.ask(describe_groups, request, version).groups


def test_a_group_has_its_members_and_their_assignments(coordinators: MemoryBroker) -> None:
    joined = join_and_sync(coordinators)
    (group,) = ask(coordinators, GROUP)
    assert (group.error_code, group.group_state, group.protocol_data) == (E.NONE, "Stable", "range")
    (member,) = group.members
    assert (member.member_id, member.member_assignment) == (joined.member_id, b"mine")


@pytest.mark.parametrize(("version", "code"), [(5, E.NONE), (6, E.GROUP_ID_NOT_FOUND)])
def test_a_missing_group_is_dead_and_from_version_6_on_an_error(
    coordinators: MemoryBroker, version: int, code: ErrorCode
) -> None:
    (group,) = ask(coordinators, "missing", version=version)
    assert (group.error_code, group.group_state) == (code, "Dead")


@pytest.mark.parametrize("wanted", [False, True])
def test_operations_are_set_on_request_and_for_existing_groups(
    coordinators: MemoryBroker, wanted: bool
) -> None:
    join_and_sync(coordinators)
    found, missing = ask(coordinators, GROUP, "missing", operations=wanted)
    assert (found.authorized_operations > 0) is wanted
    assert missing.authorized_operations < 0


def ask_consumer_groups(
    world: MemoryBroker, *groups: str, version: int = 1, operations: bool = False
) -> list[DescribedConsumerGroup]:
    request = ConsumerGroupDescribeRequest(
        group_ids=list(groups), include_authorized_operations=operations
    )
    return world.ask(consumer_group_describe, request, version).groups


@pytest.fixture
def consumers(coordinators: MemoryBroker) -> MemoryBroker:
    """A consumer group with one member, and a classic group."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id="member",
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    coordinators.ask(consumer_group_heartbeat, request, 1)
    join_and_sync(coordinators)
    return coordinators


def test_a_group_has_its_members_and_their_partitions(consumers: MemoryBroker) -> None:
    (group,) = ask_consumer_groups(consumers, "consumers")
    (member,) = group.members
    assert (member.client_id, member.client_host) == (CLIENT_ID, f"/{PEER[0]}")
    assert member.subscribed_topic_names == ["orders"]
    assert member.target_assignment is not None
    (topic,) = member.target_assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("orders", [0, 1])


def test_groups_of_other_protocols_are_not_found(consumers: MemoryBroker) -> None:
    codes = {
        group.group_id: group.error_code
        for group in ask_consumer_groups(consumers, GROUP, "missing")
    }
    assert codes == {GROUP: E.GROUP_ID_NOT_FOUND, "missing": E.GROUP_ID_NOT_FOUND}


@pytest.mark.parametrize("wanted", [False, True])
def test_operations_of_consumer_groups_are_set_on_request(
    consumers: MemoryBroker, wanted: bool
) -> None:
    found, missing = ask_consumer_groups(consumers, "consumers", "missing", operations=wanted)
    assert (found.authorized_operations > 0) is wanted
    assert missing.authorized_operations < 0


def test_the_type_of_a_member_came_with_version_1(consumers: MemoryBroker) -> None:
    types = {
        version: ask_consumer_groups(consumers, "consumers", version=version)[0]
        .members[0]
        .member_type
        for version in (0, 1)
    }
    assert types == {0: -1, 1: 1}


def codes(world: MemoryBroker, *groups: str) -> dict[str, int]:
    response = world.ask(delete_groups, DeleteGroupsRequest(groups_names=list(groups)), 2)
    return {each.group_id: each.error_code for each in response.results}


def test_only_groups_without_members_are_deleted(coordinators: MemoryBroker) -> None:
    join_and_sync(coordinators)
    commit(coordinators, 5, "empty")
    wanted = (GROUP, "empty", "missing")
    assert codes(coordinators, *wanted) == {
        GROUP: E.NON_EMPTY_GROUP,
        "empty": E.NONE,
        "missing": E.GROUP_ID_NOT_FOUND,
    }
    assert codes(coordinators, "empty") == {"empty": E.GROUP_ID_NOT_FOUND}


def test_without_the_group_s_partition_there_is_no_coordinator(world: MemoryBroker) -> None:
    assert codes(world, GROUP) == {GROUP: E.NOT_COORDINATOR}
