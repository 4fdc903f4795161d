from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.group_members import ConsumerGroupHeartbeatRequest
from lakelog.protocol.groups import ConsumerGroupDescribeRequest, DescribedConsumerGroup
from lakelog.server.handlers import consumer_group_heartbeat
from lakelog.server.handlers.consumer_group_describe import handle
from memory_broker import CLIENT_ID, PEER, MemoryBroker
from memory_clients import GROUP, join_and_sync

E = ErrorCode


def ask(
    world: MemoryBroker, *groups: str, version: int = 1, operations: bool = False
) -> list[DescribedConsumerGroup]:
    request = ConsumerGroupDescribeRequest(
        group_ids=list(groups), include_authorized_operations=operations
    )
    return world.ask(handle, request, version).groups


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
    coordinators.ask(consumer_group_heartbeat.handle, request, 1)
    join_and_sync(coordinators)
    return coordinators


def test_a_group_has_its_members_and_their_partitions(consumers: MemoryBroker) -> None:
    (group,) = ask(consumers, "consumers")
    (member,) = group.members
    assert (member.client_id, member.client_host) == (CLIENT_ID, f"/{PEER[0]}")
    assert member.subscribed_topic_names == ["orders"]
    assert member.target_assignment is not None
    (topic,) = member.target_assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("orders", [0, 1])


def test_groups_of_other_protocols_are_not_found(consumers: MemoryBroker) -> None:
    codes = {group.group_id: group.error_code for group in ask(consumers, GROUP, "missing")}
    assert codes == {GROUP: E.GROUP_ID_NOT_FOUND, "missing": E.GROUP_ID_NOT_FOUND}


@pytest.mark.parametrize("wanted", [False, True])
def test_operations_are_set_on_request_and_for_existing_groups(
    consumers: MemoryBroker, wanted: bool
) -> None:
    found, missing = ask(consumers, "consumers", "missing", operations=wanted)
    assert (found.authorized_operations > 0) is wanted
    assert missing.authorized_operations < 0


def test_the_type_of_a_member_came_with_version_1(consumers: MemoryBroker) -> None:
    types = {
        version: ask(consumers, "consumers", version=version)[0].members[0].member_type
        for version in (0, 1)
    }
    assert types == {0: -1, 1: 1}
