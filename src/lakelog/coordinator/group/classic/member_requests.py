"""Requests of members of classic groups: SyncGroup, Heartbeat and LeaveGroup.

SyncGroup has versions 0 to 5, Heartbeat 0 to 4. The leader's SyncGroup contains the assignment of
its generation. It is committed before any member gets it, so a restarted coordinator knows the
assignment that members have. LeaveGroup (0 to 5) is for one member or, from v3, for several at
once.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.groups import PendingMembers
from lakelog.coordinator.group.classic.member import Member, SyncReply
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.limits import ShardLimits
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol.heartbeat import HeartbeatRequest
from lakelog.protocol.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from lakelog.protocol.sync_group import SyncGroupRequest, SyncGroupResponse


class Leaves:
    """Decisions about LeaveGroup requests."""

    def __init__(self, rebalancer: Rebalancer, pending: PendingMembers) -> None:
        self._rebalancer = rebalancer
        self._pending = pending

    def leave(
        self, now: Now, group: ClassicGroup, members: list[MemberIdentity]
    ) -> tuple[Decision, list[MemberResponse]]:
        """Remove members (KIP-345); return the decision, and a response with a code for each.

        One rebalance follows for all of them. The codes are UNKNOWN_MEMBER_ID and
        FENCED_INSTANCE_ID; nothing is raised.
        """
        member_count = len(group.members)
        responses = [_response(identity, self._leave(group, identity)) for identity in members]
        if len(group.members) < member_count:
            return self._rebalancer.members_left(now, group), responses
        return self._rebalancer.pending_left(now, group), responses

    def _leave(self, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if instance_id is None and self._pending.remove(group, member_id):
            return ErrorCode.NONE
        if not member_id and instance_id is not None:
            # An administrator that removes a static member sends only its instance id.
            member_id = group.static_members.get(instance_id, "")
        try:
            member = group.validate(member_id, instance_id)
        except KafkaError as error:
            return error.code
        self._rebalancer.forget(group, member)
        return ErrorCode.NONE


def _response(identity: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        error_code=code,
    )


def unknown_members(members: list[MemberIdentity]) -> list[MemberResponse]:
    """Return the responses if the group does not exist."""
    return [_response(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in members]


def leave_response(responses: list[MemberResponse], version: int) -> LeaveGroupResponse:
    """Return the response; before version 3 it has the code of its only member."""
    if version < 3:
        return LeaveGroupResponse(error_code=responses[0].error_code)
    return LeaveGroupResponse(members=responses)


class Syncs:
    """Decisions about SyncGroup and Heartbeat requests."""

    def __init__(self, rebalancer: Rebalancer, limits: ShardLimits) -> None:
        self._rebalancer = rebalancer
        self._limits = limits

    def sync(
        self, now: Now, group: ClassicGroup, request: SyncGroupRequest, reply: SyncReply
    ) -> Decision:
        """Decide SyncGroup.

        Raises `KafkaError` with UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        INCONSISTENT_GROUP_PROTOCOL or REBALANCE_IN_PROGRESS.
        """
        member = _validate(group, request)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalancer.synced(group, member)
        if group.state is GroupState.STABLE:
            self._rebalancer.renew_session(now, group, member)
            reply(group.sync_response(member))
            return Result()
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        assert member.sync_reply is None, "a parked reply would be lost"
        member.sync_reply = reply
        # A leader that repeats its request while the record is being written must not write a
        # second assignment of the same generation.
        if group.leader_id != member.member_id or group.assignment_generation == group.generation:
            return Result()
        return self._write_assignment(now, group, request)

    def _write_assignment(
        self, now: Now, group: ClassicGroup, request: SyncGroupRequest
    ) -> Decision:
        generation = group.assignment_generation = group.generation
        assignments = {
            assignment.member_id: bytes(assignment.assignment)
            for assignment in request.assignments
            if assignment.member_id in group.members
        }
        more = sum(map(len, assignments.values()))
        more -= sum(len(member.assignment) for member in group.members.values())
        if not self._limits.has_memory(group.group_id, more):
            return self._refuse_assignment(now, group)

        # A member may have left or expired while the record was written: the generation that it
        # belongs to is over then.
        def awaited() -> bool:
            return group.state is GroupState.COMPLETING_REBALANCE and group.generation == generation

        def committed(now: Now) -> Decision | None:
            if awaited():
                self._rebalancer.give_assignments(now, group, assignments)
            return None

        def failed(now: Now, code: ErrorCode) -> Decision | None:
            if not awaited():
                return None
            group.assignment_generation = -1
            self._rebalancer.reset_assignments(now, group, code)
            return self._rebalancer.prepare(now, group)

        return Result([group.record(assignments)], committed, failed)

    def _refuse_assignment(self, now: Now, group: ClassicGroup) -> Decision:
        """Abandon the generation because its assignment needs more memory than there is.

        COORDINATOR_NOT_AVAILABLE makes the members find the coordinator and join again.
        """
        group.assignment_generation = -1
        self._rebalancer.reset_assignments(now, group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._rebalancer.prepare(now, group)

    def heartbeat(self, now: Now, group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
        """Renew the session; return REBALANCE_IN_PROGRESS if the member has to join again.

        Raises `KafkaError` with UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
        """
        member = group.validate(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self._rebalancer.renew_session(now, group, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE


def _validate(group: ClassicGroup, request: SyncGroupRequest) -> Member:
    member = group.validate(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    for sent, ours in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol),
    ):
        if sent is not None and ours is not None and sent != ours:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return member
