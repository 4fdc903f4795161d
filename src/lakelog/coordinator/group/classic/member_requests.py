"""Requests of members of classic groups: SyncGroup, Heartbeat and LeaveGroup.

SyncGroup has versions 0 to 5, Heartbeat 0 to 4. The leader's SyncGroup contains the assignment of
its generation. It is committed before any member gets it, so a restarted coordinator knows the
assignment that members have. LeaveGroup (0 to 5) is for one member or, from v3, for several at
once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.change_queue import GroupRequest
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.groups import PendingMembers
from lakelog.coordinator.group.classic.member import Member
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.limits import ShardLimits
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.shard import Effect, Now, Result
from lakelog.protocol.groups import (
    HeartbeatRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


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


@dataclass(slots=True, kw_only=True, eq=False)
class Sync(GroupRequest):
    """One SyncGroup request without references into the receive buffer."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]
    """By member id, from the leader; the decision takes them out of the request."""

    @classmethod
    def of(cls, request: SyncGroupRequest, future: Any) -> Self:
        """Return a copy of the request; `future` gets its response."""
        return cls(
            future=future,
            key=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={row.member_id: bytes(row.assignment) for row in request.assignments},
        )

    def refuse(self, code: ErrorCode) -> None:
        self.answer(SyncGroupResponse(error_code=code))


class Syncs:
    """Decisions about SyncGroup and Heartbeat requests."""

    def __init__(self, rebalancer: Rebalancer, limits: ShardLimits) -> None:
        self._rebalancer = rebalancer
        self._limits = limits

    def sync(self, now: Now, group: ClassicGroup, request: Sync) -> Decision:
        """Decide SyncGroup; the request waits in its member until the assignment is committed.

        Raises `KafkaError` with UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
        INCONSISTENT_GROUP_PROTOCOL or REBALANCE_IN_PROGRESS.
        """
        member = _validate(group, request)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalancer.synced(group, member)
        if group.state is GroupState.STABLE:
            self._rebalancer.renew_session(now, group, member)
            return Result(reply=group.sync_response(member))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.park_sync(request)
        sent, request.assignments = request.assignments, {}
        # A leader that repeats its request while the record is being written must not write a
        # second assignment of the same generation.
        if group.leader_id != member.member_id or group.assignment_generation == group.generation:
            return Result()
        return self._write_assignment(now, group, sent)

    def _write_assignment(self, now: Now, group: ClassicGroup, sent: dict[str, bytes]) -> Decision:
        assert group.state is GroupState.COMPLETING_REBALANCE, "no other state waits for it"
        group.assignment_generation = group.generation
        assignments = {
            member_id: assignment
            for member_id, assignment in sent.items()
            if member_id in group.members
        }
        more = sum(map(len, assignments.values()))
        more -= sum(len(member.assignment) for member in group.members.values())
        if not self._limits.has_memory(group.group_id, more):
            return self._refuse_assignment(now, group)

        effect = _Assign(self._rebalancer, group, group.generation, assignments)
        return Result([group.record(assignments)], effects=(effect,))

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


@dataclass(slots=True, eq=False)
class _Assign(Effect):
    """Gives the members of a generation their assignments once they are committed."""

    rebalancer: Rebalancer
    group: ClassicGroup
    generation: int
    assignments: dict[str, bytes]

    def _is_over(self) -> bool:
        """Return whether a member has left or expired while the record was written."""
        state = (self.group.state, self.group.generation)
        return state != (GroupState.COMPLETING_REBALANCE, self.generation)

    def committed(self, now: Now, result: Decision) -> None:
        if not self._is_over():
            self.rebalancer.give_assignments(now, self.group, self.assignments)

    def failed(self, now: Now, result: Decision, code: ErrorCode) -> tuple[Decision, ...]:
        if self._is_over():
            return ()
        self.group.assignment_generation = -1
        self.rebalancer.reset_assignments(now, self.group, code)
        return (self.rebalancer.prepare(now, self.group),)


def _validate(group: ClassicGroup, request: Sync) -> Member:
    member = group.validate(request.member_id, request.instance_id)
    if request.generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    for sent, ours in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol),
    ):
        if sent is not None and ours is not None and sent != ours:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return member
