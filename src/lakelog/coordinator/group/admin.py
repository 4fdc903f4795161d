"""Requests of administrators: list, describe and delete groups, delete offsets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.change_queue import GroupRequest
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.coordinator.group.queries import GroupFilter, GroupProgress
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.host import ShardHost
from lakelog.coordinator.requests import answered, complete
from lakelog.coordinator.shard import Now, Reply
from lakelog.protocol.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
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
                DeletableGroupResult(group_id=group_id, error_code=self.codes[group_id])
                for group_id in self.names
            ]
            complete(self.future, DeleteGroupsResponse(results=rows))


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

    def list_groups(self, request: ListGroupsRequest) -> Reply[ListGroupsResponse]:
        """Return the groups coordinated by this broker that match the filters.

        The response has COORDINATOR_LOAD_IN_PROGRESS while a partition is loading.
        """
        if self._host.loading:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return answered(self._tasks, ListGroupsResponse(error_code=code))
        group_filter = GroupFilter(request.states_filter, request.types_filter)
        groups = [
            listed
            for shard in self._host.active_shards()
            for listed in shard.queries.list_groups(group_filter)
        ]
        return answered(self._tasks, ListGroupsResponse(groups=groups))

    def progress(self) -> list[GroupProgress]:
        """Return members and committed offsets of all groups coordinated by this broker."""
        shards = self._host.active_shards()
        return [group for shard in shards for group in shard.queries.progress()]

    def describe_groups(
        self, request: DescribeGroupsRequest, version: int
    ) -> Reply[DescribeGroupsResponse]:
        """Return the description of each classic group, or its own error code."""
        groups = [self._describe(name, version) for name in dict.fromkeys(request.groups)]
        if request.include_authorized_operations:
            _authorize(groups)
        return answered(self._tasks, DescribeGroupsResponse(groups=groups))

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        try:
            return self._shard_of(group_id).queries.describe(group_id, version)
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code)

    def consumer_group_describe(
        self, request: ConsumerGroupDescribeRequest
    ) -> Reply[ConsumerGroupDescribeResponse]:
        """Return the description of each consumer group, or its own error code (KIP-848)."""
        groups = [self._describe_consumer(name) for name in dict.fromkeys(request.group_ids)]
        if request.include_authorized_operations:
            _authorize(groups)
        return answered(self._tasks, ConsumerGroupDescribeResponse(groups=groups))

    def _describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        code = ErrorCode.INVALID_GROUP_ID
        if not self._config.is_enabled:
            code = ErrorCode.UNSUPPORTED_VERSION
        elif group_id:
            try:
                return self._shard_of(group_id).queries.describe_consumer(group_id)
            except KafkaError as error:
                code = error.code
        return DescribedConsumerGroup(group_id=group_id, error_code=code)

    def delete_groups(self, request: DeleteGroupsRequest) -> Reply[DeleteGroupsResponse]:
        """Delete groups; each group has its own error code, for example NON_EMPTY_GROUP.

        The response comes when all decisions are committed or refused.
        """
        future = self._tasks.future()
        names = list(dict.fromkeys(request.groups_names))
        codes: dict[str, ErrorCode] = {}
        for name in names:
            self._host.ask(_DeleteGroup(future=future, key=name, names=names, codes=codes))
        if not names:
            complete(future, DeleteGroupsResponse())
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


def _authorize(groups: Iterable[DescribedGroup | DescribedConsumerGroup]) -> None:
    """Set the operations of each group that was found: clients are not authenticated."""
    for group in groups:
        if not group.error_code:
            group.authorized_operations = _GROUP_OPERATIONS
