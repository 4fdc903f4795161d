"""SyncGroup (versions 0 to 5) and Heartbeat (0 to 4) of classic groups.

The leader's SyncGroup carries the assignment of its generation. It is written down before anybody
is told: what a member has been given is what a restarted coordinator knows.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.member import Member, SyncReply
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol.heartbeat import HeartbeatRequest
from lakelog.protocol.sync_group import SyncGroupRequest, SyncGroupResponse


class Syncs:
    """Decides SyncGroup and Heartbeat requests; both raise `KafkaError` for a refusal."""

    def __init__(self, rebalancer: Rebalancer, has_memory: Callable[[str, int], bool]) -> None:
        """`has_memory`: whether a group may take so many bytes more."""
        self._rebalancer = rebalancer
        self._has_memory = has_memory

    def sync(
        self, now: Now, group: ClassicGroup, request: SyncGroupRequest, reply: SyncReply
    ) -> Decision:
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
        if group.leader_id != member.member_id or group.assignment_generation == group.generation:
            return Result()
        return self._write_assignment(now, group, request)

    def _write_assignment(
        self, now: Now, group: ClassicGroup, request: SyncGroupRequest
    ) -> Decision:
        generation = group.assignment_generation = group.generation
        assignments = {
            each.member_id: bytes(each.assignment)
            for each in request.assignments
            if each.member_id in group.members
        }
        more = sum(map(len, assignments.values()))
        more -= sum(len(member.assignment) for member in group.members.values())
        if not self._has_memory(group.group_id, more):
            return self._refuse_assignment(now, group)

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
        """There is no room for it: all members find the coordinator and join again, later."""
        group.assignment_generation = -1
        self._rebalancer.reset_assignments(now, group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._rebalancer.prepare(now, group)

    def heartbeat(self, now: Now, group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
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
    for told, ours in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol),
    ):
        if told is not None and ours is not None and told != ours:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return member
