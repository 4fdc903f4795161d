"""Requests about groups, of members and of administrators.

Each request of a member applies to the existing group, of either protocol: JoinGroup (KIP-62,
static members: KIP-345, member ids: KIP-394), SyncGroup (protocol type and name: KIP-559),
Heartbeat and LeaveGroup. ConsumerGroupHeartbeat is in `consumer/heartbeat.py`. Administrators list,
describe and delete groups, and delete offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.change_queue import GroupRequest
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.classic.member import Join
from lakelog.coordinator.group.classic.member_requests import Sync, leave_response, unknown_members
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.coordinator.group.consumer.migration import consumer_tombstones
from lakelog.coordinator.group.queries import GroupFilter, GroupProgress
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.host import ShardHost
from lakelog.coordinator.requests import answered, complete
from lakelog.coordinator.shard import Now, Reply, Result, Then
from lakelog.protocol import groups as messages
from lakelog.protocol.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from lakelog.protocol.offsets import OffsetDeleteRequest, OffsetDeleteResponse
from lakelog.runtime.api import Tasks


@dataclass(slots=True, kw_only=True, eq=False)
class _DeleteGroup(GroupRequest):
    """The deletion of one group; the future of all groups gets the codes of all."""

    names: list[str]
    codes: dict[str, ErrorCode]
    """Of the groups whose deletion has been decided."""

    allows_empty_key: ClassVar[bool] = True
    is_exclusive: ClassVar[bool] = True

    def decide_in(self, shard: GroupShard, now: Now) -> Decision:
        return shard.deletions.delete_group(self.key)

    def answer(self, reply: ErrorCode) -> None:
        assert self.key not in self.codes, "a group is deleted once"
        self.codes[self.key] = reply
        if len(self.codes) == len(self.names):
            rows = [
                messages.DeletableGroupResult(group_id=group_id, error_code=self.codes[group_id])
                for group_id in self.names
            ]
            complete(self.future, messages.DeleteGroupsResponse(results=rows))


@dataclass(slots=True, kw_only=True, eq=False)
class _DeleteOffsets(GroupRequest):
    request: OffsetDeleteRequest

    is_exclusive: ClassVar[bool] = True

    def decide_in(self, shard: GroupShard, now: Now) -> Decision:
        return shard.deletions.delete_offsets(self.request)

    def refuse(self, code: ErrorCode) -> None:
        self.answer(OffsetDeleteResponse(error_code=code))


class GroupAdmin:
    """The administrators' interface to the coordinator; replies as `GroupCoordinator` does."""

    def __init__(self, host: ShardHost[GroupShard], tasks: Tasks, config: ConsumerConfig) -> None:
        self._host = host
        self._tasks = tasks
        self._config = config

    def _shard_of(self, group_id: str) -> GroupShard:
        return self._host.shard_of(group_id, allows_empty=True)

    def list_groups(
        self, request: messages.ListGroupsRequest
    ) -> Reply[messages.ListGroupsResponse]:
        """Return the groups coordinated by this broker that match the filters.

        The response has COORDINATOR_LOAD_IN_PROGRESS while a partition is loading.
        """
        if self._host.loading:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return answered(self._tasks, messages.ListGroupsResponse(error_code=code))
        group_filter = GroupFilter(request.states_filter, request.types_filter)
        groups = [
            listed
            for shard in self._host.active_shards()
            for listed in shard.queries.list_groups(group_filter)
        ]
        return answered(self._tasks, messages.ListGroupsResponse(groups=groups))

    def progress(self) -> list[GroupProgress]:
        """Return members and committed offsets of all groups coordinated by this broker."""
        shards = self._host.active_shards()
        return [group for shard in shards for group in shard.queries.progress()]

    def describe_groups(
        self, request: messages.DescribeGroupsRequest, version: int
    ) -> Reply[messages.DescribeGroupsResponse]:
        """Return the description of each classic group, or its own error code."""
        groups = [self._describe(name, version) for name in dict.fromkeys(request.groups)]
        if request.include_authorized_operations:
            _authorize(groups)
        return answered(self._tasks, messages.DescribeGroupsResponse(groups=groups))

    def _describe(self, group_id: str, version: int) -> messages.DescribedGroup:
        try:
            return self._shard_of(group_id).queries.describe(group_id, version)
        except KafkaError as error:
            return messages.DescribedGroup(group_id=group_id, error_code=error.code)

    def consumer_group_describe(
        self, request: messages.ConsumerGroupDescribeRequest
    ) -> Reply[messages.ConsumerGroupDescribeResponse]:
        """Return the description of each consumer group, or its own error code (KIP-848)."""
        groups = [self._describe_consumer(name) for name in dict.fromkeys(request.group_ids)]
        if request.include_authorized_operations:
            _authorize(groups)
        return answered(self._tasks, messages.ConsumerGroupDescribeResponse(groups=groups))

    def _describe_consumer(self, group_id: str) -> messages.DescribedConsumerGroup:
        code = ErrorCode.INVALID_GROUP_ID
        if not self._config.is_enabled:
            code = ErrorCode.UNSUPPORTED_VERSION
        elif group_id:
            try:
                return self._shard_of(group_id).queries.describe_consumer(group_id)
            except KafkaError as error:
                code = error.code
        return messages.DescribedConsumerGroup(group_id=group_id, error_code=code)

    def delete_groups(
        self, request: messages.DeleteGroupsRequest
    ) -> Reply[messages.DeleteGroupsResponse]:
        """Delete groups; each group has its own error code, for example NON_EMPTY_GROUP.

        The response comes when all decisions are committed or refused.
        """
        future = self._tasks.future()
        names = list(dict.fromkeys(request.groups_names))
        codes: dict[str, ErrorCode] = {}
        for name in names:
            self._host.ask(_DeleteGroup(future=future, key=name, names=names, codes=codes))
        if not names:
            complete(future, messages.DeleteGroupsResponse())
        return future

    def offset_delete(self, request: OffsetDeleteRequest) -> Reply[OffsetDeleteResponse]:
        """Delete committed offsets of topics that the group does not subscribe to (KIP-496).

        Errors are codes in the response, of the request or of each partition.
        """
        future = self._tasks.future()
        self._host.ask(_DeleteOffsets(future=future, key=request.group_id, request=request))
        return future


_GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""READ, DELETE, DESCRIBE and those on configurations, as bits of Kafka's AclOperation."""


def _authorize(groups: Iterable[messages.DescribedGroup | messages.DescribedConsumerGroup]) -> None:
    """Set the operations of each group that was found: clients are not authenticated."""
    for group in groups:
        if not group.error_code:
            group.authorized_operations = _GROUP_OPERATIONS


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
        join = Then(
            lambda now: (shard.changes.decide_again(now, self),),
            lambda now, code: self.refuse(code),
        )
        decision = Result(records, effects=(join,))
        return shard.changes.change(self.key, decision)


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
        # Also if the record of the empty group cannot be written: the members have left anyway.
        left = Then(lambda now: self.answer(responses), lambda now, code: self.answer(responses))
        return replace(decision, effects=(left,))

    def answer(self, reply: list[MemberResponse]) -> None:
        complete(self.future, leave_response(reply, self.version))

    def refuse(self, code: ErrorCode) -> None:
        complete(self.future, LeaveGroupResponse(error_code=code))


def _classic(shard: GroupShard, group_id: str) -> ClassicGroup:
    group = shard.state.classic.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return group
