"""SyncGroup (versions 0 to 5) and Heartbeat (0 to 4) of classic groups.

The leader's SyncGroup carries the assignment of its generation. It is written down before anybody
is told: what a member has been given is what a restarted coordinator knows.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.classic import ClassicGroup, GroupState
from lakelog.coordinator.group.member import Member, SyncReply
from lakelog.coordinator.group.rebalance import Decision, Rebalancer
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol.heartbeat import HeartbeatRequest
from lakelog.protocol.sync_group import SyncGroupRequest, SyncGroupResponse


class Syncs:
    """Decides SyncGroup and Heartbeat requests; both raise `KafkaError` for a refusal."""

    def __init__(self, rebalancer: Rebalancer) -> None:
        self._rebalancer = rebalancer

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
        member.sync_reply = reply
        if group.leader_id != member.member_id or group.assignment_generation == group.generation:
            return Result()
        return self._write_assignment(group, request)

    def _write_assignment(self, group: ClassicGroup, request: SyncGroupRequest) -> Decision:
        generation = group.assignment_generation = group.generation
        assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}

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
