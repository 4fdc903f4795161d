"""The session of a member: joining, heartbeats, commits and leaving."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.committed import Committed
from lakelog.client.consumer.group import GroupSession
from lakelog.client.consumer.membership import GroupMember
from lakelog.client.errors import ClientError
from lakelog.protocol.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from scripted_broker import ScriptedBroker
from waiting import eventually

BOTH = {("orders", 0), ("orders", 1)}
HEARTBEAT_S = 0.005
NO_HEARTBEAT_S = 3600.0


def joined(request: JoinGroupRequest) -> JoinGroupResponse:
    """Return the response to the only member of a group, which is its leader."""
    if not request.member_id:
        return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m1")
    member = JoinGroupResponseMember(member_id="m1", metadata=request.protocols[0].metadata)
    return JoinGroupResponse(
        generation_id=4,
        protocol_name=request.protocols[0].name,
        leader="m1",
        member_id="m1",
        members=[member],
    )


def synced(request: SyncGroupRequest) -> SyncGroupResponse:
    return SyncGroupResponse(assignment=request.assignments[0].assignment)


@pytest.fixture
def start(broker: ScriptedBroker, cluster: Cluster) -> Iterator[Callable[..., GroupSession]]:
    """Starts a session of a group that has no other members."""
    broker.on(JoinGroupRequest, joined)
    broker.on(SyncGroupRequest, synced)
    broker.on(HeartbeatRequest, HeartbeatResponse())
    broker.on(LeaveGroupRequest, LeaveGroupResponse(members=[MemberResponse(member_id="m1")]))
    sessions: list[GroupSession] = []

    def run(heartbeat_s: float = HEARTBEAT_S) -> GroupSession:
        beats = Cluster(broker.address, timeout_s=10.0)
        member = GroupMember("billing", ["orders"])
        sessions.append(GroupSession(member, cluster, beats, heartbeat_interval_s=heartbeat_s))
        return sessions[-1]

    yield run
    for session in sessions:
        session.close()


def test_the_only_member_gets_all_partitions(start: Callable[[], GroupSession]) -> None:
    session = start()
    assert session.join(10.0) == BOTH
    assert not session.needs_join
    assert (session.membership.member_id, session.membership.generation) == ("m1", 4)


def test_a_join_survives_a_change_of_the_coordinator(
    broker: ScriptedBroker, start: Callable[[], GroupSession]
) -> None:
    moved = JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    broker.on(JoinGroupRequest, moved, None, joined)
    assert start().join(10.0) == BOTH


def test_a_join_without_a_coordinator_ends_at_the_limit(
    broker: ScriptedBroker, start: Callable[[], GroupSession]
) -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.on(JoinGroupRequest, JoinGroupResponse(error_code=loading))
    with pytest.raises(ClientError) as error:
        start().join(0.02)
    assert error.value.retriable


def test_a_rebalance_is_noticed_by_a_heartbeat(
    broker: ScriptedBroker, start: Callable[[], GroupSession]
) -> None:
    session = start()
    session.join(10.0)
    noticed = threading.Event()

    def rebalancing(_: HeartbeatRequest) -> HeartbeatResponse:
        noticed.set()
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)

    broker.on(HeartbeatRequest, rebalancing)
    assert noticed.wait(60)
    eventually(lambda: session.needs_join)
    broker.on(HeartbeatRequest, HeartbeatResponse())
    assert session.join(10.0) == BOTH


def test_a_fenced_member_fails_at_its_next_call(
    broker: ScriptedBroker, start: Callable[[], GroupSession]
) -> None:
    session = start()
    session.join(10.0)
    broker.on(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
    with pytest.raises(ClientError) as error:
        eventually(lambda: session.needs_join)
    assert error.value.code is ErrorCode.FENCED_INSTANCE_ID


def test_a_member_that_the_group_removed_commits_nothing(
    broker: ScriptedBroker, start: Callable[[], GroupSession]
) -> None:
    """An empty group would accept a commit without a member id."""
    session = start()
    session.join(10.0)
    row = OffsetCommitResponsePartition(partition_index=0, error_code=25)
    topic = OffsetCommitResponseTopic(name="orders", partitions=[row])
    broker.on(OffsetCommitRequest, OffsetCommitResponse(topics=[topic]))
    for _ in range(2):
        with pytest.raises(ClientError) as error:
            session.commit({("orders", 0): Committed(5)})
        assert error.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(broker.asked(OffsetCommitRequest)) == 1
    assert session.needs_join


def test_a_member_that_closes_leaves_at_once(
    broker: ScriptedBroker, start: Callable[[], GroupSession]
) -> None:
    session = start()
    session.join(10.0)
    session.close()
    (goodbye,) = broker.asked(LeaveGroupRequest)
    assert goodbye.members[0].member_id == "m1"


def test_a_member_leaves_at_the_coordinator_that_took_over(
    broker: ScriptedBroker, start: Callable[..., GroupSession]
) -> None:
    session = start(NO_HEARTBEAT_S)  # a heartbeat finds the coordinator by itself
    session.join(10.0)
    moved = LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    answers = itertools.chain([moved], itertools.repeat(LeaveGroupResponse()))
    broker.on(LeaveGroupRequest, lambda _: next(answers))
    lookups = len(broker.asked(FindCoordinatorRequest))
    session.close()
    assert [leave.members[0].member_id for leave in broker.asked(LeaveGroupRequest)] == ["m1"] * 2
    assert len(broker.asked(FindCoordinatorRequest)) == lookups + 1


def test_a_group_without_a_coordinator_does_not_keep_a_member_that_closes(
    broker: ScriptedBroker, start: Callable[[], GroupSession]
) -> None:
    session = start()
    session.join(10.0)
    broker.on(LeaveGroupRequest, LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
    session.close()
    assert len(broker.asked(LeaveGroupRequest)) > 1


def test_a_member_that_never_joined_has_nothing_to_leave(
    broker: ScriptedBroker, start: Callable[[], GroupSession]
) -> None:
    start().close()
    assert broker.asked(LeaveGroupRequest) == []
