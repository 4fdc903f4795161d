from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.consumer.membership import GROUP_MOVED_ON, GroupMember, MembershipState, Step
from lakelog.client.errors import ClientError
from lakelog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
)
from lakelog.protocol.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)


def joined(member: GroupMember, others: dict[str, JoinGroupRequest] | None = None) -> Step:
    """The answer that makes `member` leader of itself and the others."""
    requests = {"m1": member.join(), **(others or {})}
    return member.joined(
        JoinGroupResponse(
            generation_id=4,
            protocol_name="range",
            leader="m1",
            member_id="m1",
            members=[
                JoinGroupResponseMember(member_id=name, metadata=request.protocols[0].metadata)
                for name, request in requests.items()
            ],
        )
    )


def shares(request: SyncGroupRequest) -> dict[str, dict[str, list[int]]]:
    found = {}
    for row in request.assignments:
        assignment = decode_versioned(ConsumerProtocolAssignment, row.assignment)
        found[row.member_id] = {t.topic: t.partitions for t in assignment.assigned_partitions}
    return found


def stable() -> GroupMember:
    member = GroupMember("g", ["a"])
    joined(member)
    request = member.sync({"a": 2})
    member.synced(SyncGroupResponse(assignment=request.assignments[0].assignment))
    return member


def test_a_new_member_joins_again_with_the_id_it_was_given() -> None:
    member = GroupMember("g", ["b", "a"], session_timeout_ms=6_000, rebalance_timeout_ms=9_000)
    request = member.join()
    assert (request.member_id, request.session_timeout_ms) == ("", 6_000)
    assert request.rebalance_timeout_ms == 9_000
    required = ErrorCode.MEMBER_ID_REQUIRED
    assert member.joined(JoinGroupResponse(error_code=required, member_id="m1")) is Step.REJOIN
    again = member.join()
    assert again.member_id == "m1"
    subscription = decode_versioned(ConsumerProtocolSubscription, again.protocols[0].metadata)
    assert subscription.topics == ["a", "b"]


def test_the_leader_hands_out_partitions_of_topics_that_exist() -> None:
    member = GroupMember("g", ["a", "missing"])
    other = GroupMember("g", ["a", "b"])
    assert joined(member, {"m2": other.join()}) is Step.GO_ON
    assert member.is_leader
    assert member.group_topics == {"a", "b", "missing"}
    request = member.sync({"a": 3, "b": 1})
    assert shares(request) == {"m1": {"a": [0, 1]}, "m2": {"a": [2], "b": [0]}}
    assert (request.generation_id, request.member_id) == (4, "m1")
    assert (request.protocol_type, request.protocol_name) == ("consumer", "range")


def test_a_follower_sends_no_shares_and_takes_its_own() -> None:
    leader, member = GroupMember("g", ["a"]), GroupMember("g", ["a"])
    joined(leader, {"m2": member.join()})
    answer = JoinGroupResponse(generation_id=4, protocol_name="range", leader="m1", member_id="m2")
    assert member.joined(answer) is Step.GO_ON
    assert not member.is_leader
    assert member.sync({}).assignments == []
    share = leader.sync({"a": 3}).assignments[1]
    assert share.member_id == "m2"
    assert member.synced(SyncGroupResponse(assignment=share.assignment)) is Step.GO_ON
    assert member.assigned == {("a", 2)}
    assert member.state is MembershipState.STABLE
    assert member.membership.generation == 4


def test_an_empty_assignment_is_none() -> None:
    member = GroupMember("g", ["a"])
    joined(member)
    member.synced(SyncGroupResponse(assignment=b""))
    assert member.assigned == frozenset()


def test_an_assignment_that_cannot_be_decoded_is_an_error_of_the_group() -> None:
    member = GroupMember("g", ["a"])
    joined(member)
    with pytest.raises(ClientError, match="the assignment by the leader of the group") as error:
        member.synced(SyncGroupResponse(assignment=b"\0\0\0\0\0\x09"))
    assert error.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.state is MembershipState.JOINED


def test_a_returning_static_leader_does_not_repeat_the_assignment() -> None:
    member = GroupMember("g", ["a"], instance_id="one")
    member.joined(
        JoinGroupResponse(
            generation_id=4,
            protocol_name="range",
            leader="m1",
            member_id="m1",
            skip_assignment=True,
        )
    )
    assert member.sync({"a": 3}).assignments == []
    assert member.sync({"a": 3}).group_instance_id == "one"


def test_a_rebalance_keeps_the_member_id_and_names_owned_partitions() -> None:
    member = stable()
    assert member.failed(ErrorCode.REBALANCE_IN_PROGRESS) is Step.REJOIN
    assert member.state is MembershipState.UNJOINED
    request = member.join()
    assert request.member_id == "m1"
    subscription = decode_versioned(ConsumerProtocolSubscription, request.protocols[0].metadata)
    owned = {row.topic: row.partitions for row in subscription.owned_partitions}
    assert owned == {"a": [0, 1]}


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_an_expelled_member_rejoins_without_id_and_generation(code: ErrorCode) -> None:
    member = stable()
    assert code in GROUP_MOVED_ON
    assert member.failed(code) is Step.REJOIN
    assert (member.member_id, member.generation, member.assigned) == ("", -1, frozenset())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_another_coordinator_changes_nothing_else(code: ErrorCode) -> None:
    member = stable()
    assert member.failed(code) is Step.FIND_COORDINATOR
    assert member.state is MembershipState.STABLE
    assert member.heartbeat().generation_id == 4


@pytest.mark.parametrize("code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED])
def test_what_does_not_heal_is_raised(code: ErrorCode) -> None:
    with pytest.raises(ClientError) as caught:
        stable().failed(code)
    assert caught.value.code is code


def test_a_subscription_that_cannot_be_read_is_named() -> None:
    member = GroupMember("g", ["a"])
    rows = [JoinGroupResponseMember(member_id="bad", metadata=b"\0")]
    answer = JoinGroupResponse(leader="m1", member_id="m1", protocol_name="range", members=rows)
    with pytest.raises(ClientError, match="'bad'"):
        member.joined(answer)


def test_only_a_dynamic_member_says_goodbye() -> None:
    goodbye = stable().leave()
    assert goodbye is not None
    assert [row.member_id for row in goodbye.members] == ["m1"]
    assert GroupMember("g", ["a"]).leave() is None
    static = GroupMember("g", ["a"], instance_id="one")
    joined(static)
    assert static.leave() is None
