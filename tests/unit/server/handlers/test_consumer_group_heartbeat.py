from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.group_members import ConsumerGroupHeartbeatRequest
from lakelog.server.handlers.consumer_group_heartbeat import handle
from memory_broker import MemoryBroker
from memory_clients import join_and_sync

E = ErrorCode


def request(
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
    response = coordinators.ask(handle, request(), 1)
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
    """KIP-1082: a repeated request does not leave a second member behind."""
    response = coordinators.ask(handle, request(member_id=""), version)
    assert response.error_code == code
    assert bool(response.member_id) is (code is E.NONE)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (request("unknown", 3), E.UNKNOWN_MEMBER_ID),
        (request("member", 99), E.FENCED_MEMBER_EPOCH),
        (request("member", -5), E.INVALID_REQUEST),
        (request(group=""), E.INVALID_REQUEST),
    ],
)
def test_a_bad_heartbeat_is_an_error_with_a_message(
    coordinators: MemoryBroker, asked: ConsumerGroupHeartbeatRequest, code: ErrorCode
) -> None:
    coordinators.ask(handle, request(), 1)
    response = coordinators.ask(handle, asked, 1)
    assert response.error_code == code
    assert response.error_message


def test_a_group_of_the_other_protocol_is_an_error(coordinators: MemoryBroker) -> None:
    """Its members' metadata is not of the consumer protocol, so it cannot be converted."""
    join_and_sync(coordinators)
    response = coordinators.ask(handle, request(group="readers"), 1)
    assert response.error_code == E.GROUP_ID_NOT_FOUND


def test_without_the_group_s_partition_there_is_no_coordinator(world: MemoryBroker) -> None:
    assert world.ask(handle, request(), 1).error_code == E.NOT_COORDINATOR
