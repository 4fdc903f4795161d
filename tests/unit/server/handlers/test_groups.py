from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.keys import partition_for
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.group_members import ConsumerGroupHeartbeatRequest
from lakelog.protocol.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from lakelog.server.handlers.group_members import consumer_group_heartbeat
from lakelog.server.handlers.groups import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    find_coordinator,
    list_groups,
)
from memory_broker import CLIENT_ID, LOCAL, PEER, MemoryBroker
from memory_clients import GROUP, commit, join_and_sync
from memory_metadata import FAILED_CHANGES

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


E = ErrorCode


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
