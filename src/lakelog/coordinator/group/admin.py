"""Requests of administrators: list, describe and delete groups, delete offsets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.change_queue import Refuse
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.coordinator.group.queries import GroupFilter, GroupProgress
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.host import ShardHost
from lakelog.coordinator.replies import answered, settle
from lakelog.coordinator.shard import Now, Reply
from lakelog.protocol.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from lakelog.protocol.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from lakelog.protocol.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from lakelog.protocol.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from lakelog.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from lakelog.protocol.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from lakelog.runtime.api import Tasks


class Submit(Protocol):
    """Submits a request to the shard of its group: see `GroupCoordinator`."""

    def __call__(
        self,
        group_id: str,
        decide: Callable[[GroupShard, Now], Decision],
        refuse: Refuse,
        *,
        exclusive: bool = False,
        allows_empty: bool = False,
    ) -> None: ...


class GroupAdmin:
    """The administrators' interface to the group coordinator; replies as `GroupCoordinator` does.

    The listener adds authorized operations to the responses.
    """

    def __init__(
        self, host: ShardHost[GroupShard], submit: Submit, tasks: Tasks, config: ConsumerConfig
    ) -> None:
        self._host = host
        self._submit = submit
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

        def answer(name: str, code: ErrorCode = ErrorCode.NONE) -> None:
            codes[name] = code
            if len(codes) == len(names):
                rows = [
                    DeletableGroupResult(group_id=group_id, error_code=codes[group_id])
                    for group_id in names
                ]
                settle(future, DeleteGroupsResponse(results=rows))

        for name in names:
            reply = partial(answer, name)
            decide = partial(_delete_group, name, reply)
            self._submit(name, decide, reply, exclusive=True, allows_empty=True)
        if not names:
            settle(future, DeleteGroupsResponse())
        return future

    def offset_delete(self, request: OffsetDeleteRequest) -> Reply[OffsetDeleteResponse]:
        """Delete committed offsets of topics that the group does not subscribe to (KIP-496).

        Errors are codes in the response, of the request or of each partition.
        """
        future = self._tasks.future()

        reply = partial(settle, future)

        def refuse(code: ErrorCode) -> None:
            reply(OffsetDeleteResponse(error_code=code))

        self._submit(
            request.group_id,
            lambda shard, _: shard.deletions.delete_offsets(request, reply, refuse),
            refuse,
            exclusive=True,
        )
        return future


def _delete_group(name: str, reply: Callable[..., None], shard: GroupShard, now: Now) -> Decision:
    return shard.deletions.delete_group(name, reply, reply)
