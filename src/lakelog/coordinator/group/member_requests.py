"""Requests of members of a group; each applies to the existing group, of either protocol.

JoinGroup (KIP-62, static members: KIP-345, member ids: KIP-394), SyncGroup (protocol type and name:
KIP-559), Heartbeat and LeaveGroup. ConsumerGroupHeartbeat is in `consumer/heartbeat.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.change_queue import ChangeQueue, GroupRequest
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.classic.member import Join
from lakelog.coordinator.group.classic.member_requests import Sync, leave_response, unknown_members
from lakelog.coordinator.group.consumer.migration import consumer_tombstones
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.requests import complete
from lakelog.coordinator.shard import Effect, Now, Result
from lakelog.protocol.group_members import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)


class JoinGroup(Join):
    """JoinGroup. The response comes when the rebalance completes."""

    __slots__ = ()

    def decide_in(self, shard: GroupShard, now: Now) -> Decision:
        """Return the decision; rejections are replies, not raised."""
        consumer = shard.state.consumer_groups.get(self.key)
        if consumer is None:
            return shard.admission.join(now, self)
        if consumer.members:
            return shard.classic_members.join(now, consumer, self)
        # A consumer group without members is deleted first; the classic group gets its name.
        records = consumer_tombstones(consumer).records
        decision = Result(records, effects=(_JoinAfter(shard.changes, self),))
        return shard.changes.change(self.key, decision)


@dataclass(frozen=True, slots=True)
class _JoinAfter(Effect):
    """Decides a JoinGroup after the records of another decision."""

    changes: ChangeQueue
    join: JoinGroup

    def committed(self, now: Now, result: Decision) -> tuple[Decision, ...]:
        return (self.changes.decide_again(now, self.join),)

    def failed(self, now: Now, result: Decision, code: ErrorCode) -> None:
        self.join.refuse(code)


class SyncGroup(Sync):
    """SyncGroup. The response comes when the leader's assignment is committed."""

    __slots__ = ()

    def decide_in(self, shard: GroupShard, now: Now) -> Decision:
        """Raise `KafkaError(UNKNOWN_MEMBER_ID)` for an unknown group.

        Otherwise as `Syncs.sync` and `ClassicMembers.sync`.
        """
        consumer = shard.state.consumer_groups.get(self.key)
        if consumer is not None:
            return shard.classic_members.sync(now, consumer, self)
        return shard.syncs.sync(now, _classic(shard, self.key), self)


@dataclass(slots=True, kw_only=True, eq=False)
class Heartbeat(GroupRequest):
    """Heartbeat. While the group is loading, the response has no error code."""

    request: HeartbeatRequest

    def decide_in(self, shard: GroupShard, now: Now) -> Decision:
        """Raise `KafkaError(UNKNOWN_MEMBER_ID)` for an unknown group.

        Otherwise as `Syncs.heartbeat` and `ClassicMembers.heartbeat`.
        """
        consumer = shard.state.consumer_groups.get(self.key)
        if consumer is not None:
            code = shard.classic_members.heartbeat(now, consumer, self.request)
        else:
            code = shard.syncs.heartbeat(now, _classic(shard, self.key), self.request)
        return Result(reply=code)

    def answer(self, reply: ErrorCode) -> None:
        code = ErrorCode.NONE if reply is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else reply
        complete(self.future, HeartbeatResponse(error_code=code))


@dataclass(slots=True, kw_only=True, eq=False)
class LeaveGroup(GroupRequest):
    """LeaveGroup, of several members at once (KIP-345).

    Errors of members are codes in the response, from version 3 on one for each member. Members of
    an unknown group get UNKNOWN_MEMBER_ID.
    """

    members: list[MemberIdentity]
    version: int

    def decide_in(self, shard: GroupShard, now: Now) -> Decision:
        consumer = shard.state.consumer_groups.get(self.key)
        if consumer is not None:
            return shard.classic_members.leave(now, consumer, self.members)
        group = shard.state.classic.get(self.key)
        if group is None:
            return Result(reply=unknown_members(self.members))
        decision, responses = shard.leaves.leave(now, group, self.members)
        shard.state.classic.forget_if_unused(group)
        return replace(decision, effects=(_Left(self, responses),))

    def answer(self, reply: list[MemberResponse]) -> None:
        complete(self.future, leave_response(reply, self.version))

    def refuse(self, code: ErrorCode) -> None:
        complete(self.future, LeaveGroupResponse(error_code=code))


@dataclass(frozen=True, slots=True)
class _Left(Effect):
    """Answers a LeaveGroup, also if the record of the empty group could not be written.

    The members have left anyway.
    """

    request: LeaveGroup
    responses: list[MemberResponse]

    def committed(self, now: Now, result: Decision) -> None:
        self.request.answer(self.responses)

    def failed(self, now: Now, result: Decision, code: ErrorCode) -> None:
        self.request.answer(self.responses)


def _classic(shard: GroupShard, group_id: str) -> ClassicGroup:
    group = shard.state.classic.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return group
