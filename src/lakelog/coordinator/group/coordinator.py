"""The group coordinator as a broker calls it: one method for each API, messages in and out.

A method answers through a future: at once for most, when the rebalance completes for JoinGroup
and SyncGroup, when the records are committed for OffsetCommit and LeaveGroup. Nothing is raised
at the caller: a refusal is a response with its code. No reference into a request's buffer is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.fetch import fetch_offsets
from lakelog.coordinator.group.join import Join
from lakelog.coordinator.group.listing import GroupFilter
from lakelog.coordinator.group.offsets import OffsetTable, Topics, refuse_commit
from lakelog.coordinator.group.rebalance import Decision
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.group.txn_offsets import refuse_txn_commit
from lakelog.coordinator.host import ShardHost
from lakelog.coordinator.partitioning import partition_for
from lakelog.coordinator.shard import (
    Now,
    PartitionLog,
    Reply,
    Result,
    TransactionMarker,
    coordinator_code,
)
from lakelog.protocol.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from lakelog.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from lakelog.protocol.join_group import JoinGroupRequest, JoinGroupResponse
from lakelog.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from lakelog.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from lakelog.protocol.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from lakelog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from lakelog.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from lakelog.protocol.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from lakelog.runtime.api import Clock, Random, Tasks

GROUP_TOPIC = "__consumer_offsets"

_PROTOCOL_NAME_NULL_SINCE = 7

T = TypeVar("T")


class GroupCoordinator:
    """Coordinates the groups of the partitions that have been loaded.

    Args:
        log: the partitions of `__consumer_offsets`.
        topics: resolves names and ids of the topics that offsets are committed to.
    """

    def __init__(
        self,
        config: GroupConfig,
        clock: Clock,
        tasks: Tasks,
        random: Random,
        log: PartitionLog,
        topics: Topics,
    ) -> None:
        self._config = config
        self._tasks = tasks
        self._topics = topics
        self._host = ShardHost(
            GROUP_TOPIC,
            log,
            clock,
            tasks,
            lambda _: GroupShard(config, topics, random),
            batch_bytes_max=config.batch_bytes_max,
        )

    # Ownership

    def partition_for(self, group_id: str) -> int:
        """The partition whose leader coordinates the group; FindCoordinator needs it too.

        The topic's own count decides: another setting since it was made must not hide its groups.
        """
        count = self._topics.partition_count(GROUP_TOPIC) or self._config.partitions
        return partition_for(group_id, count)

    @property
    def partitions(self) -> list[int]:
        """Those loaded or loading here."""
        return self._host.partitions

    @property
    def groups_owned(self) -> list[str]:
        """Ids of the groups in the partitions that are loaded."""
        everything = GroupFilter((), ())
        return [
            listed.group_id
            for shard in self._host.active_shards()
            for listed in shard.list_groups(everything)
        ]

    async def load_partition(self, partition: int) -> None:
        """To be called when this broker has become the partition's leader.

        Until it returns, requests are answered `COORDINATOR_LOAD_IN_PROGRESS`. Raises what the log
        raises, `CorruptRecord` or `WireError`; the partition then stays unloaded.
        """
        await self._host.load(partition)

    def unload_partition(self, partition: int) -> None:
        """To be called when this broker is no longer the leader."""
        self._host.unload(partition)

    def close(self) -> None:
        """Also when `__consumer_offsets` was deleted: what it held is known no more."""
        self._host.close()

    def on_topics_deleted(self, topics: Iterable[tuple[str, bytes]]) -> None:
        """Deletes the offsets committed to these topics, each a name and an id."""
        for name, topic_id in topics:
            for partition in self._host.partitions:
                self._delete_offsets(partition, name, topic_id)

    def _delete_offsets(self, partition: int, name: str, topic_id: bytes) -> None:
        try:
            self._host.decide(partition, lambda shard, _: shard.topic_deleted(name, topic_id))
        except KafkaError as error:
            # While it loads nothing is lost: the old id keeps those offsets from being returned.
            assert error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # Members

    def join_group(
        self, request: JoinGroupRequest, version: int, client_id: str, client_host: str
    ) -> Reply[JoinGroupResponse]:
        """`client_host` is what DescribeGroups shows, in Kafka `/` and the address."""
        future = self._tasks.future()

        def reply(response: JoinGroupResponse) -> None:
            name_required = version < _PROTOCOL_NAME_NULL_SINCE
            if response.error_code:
                response.protocol_name = "" if name_required else None
            elif response.protocol_name is None and name_required:
                response.protocol_name = ""
            _settle(future, response)

        def refuse(code: ErrorCode) -> None:
            reply(JoinGroupResponse(error_code=code, member_id=request.member_id))

        shortest, longest = self._config.session_timeout_min_ms, self._config.session_timeout_max_ms
        if request.group_id and not shortest <= request.session_timeout_ms <= longest:
            refuse(ErrorCode.INVALID_SESSION_TIMEOUT)
        else:
            join = Join.of(request, version, client_id, client_host, reply)
            self._decide(request.group_id, lambda shard, now: shard.join(now, join), refuse)
        return future

    def sync_group(self, request: SyncGroupRequest, version: int) -> Reply[SyncGroupResponse]:
        future = self._tasks.future()

        def reply(response: SyncGroupResponse) -> None:
            _settle(future, response)

        def refuse(code: ErrorCode) -> None:
            reply(SyncGroupResponse(error_code=code))

        self._decide(request.group_id, lambda shard, now: shard.sync(now, request, reply), refuse)
        return future

    def heartbeat(self, request: HeartbeatRequest, version: int) -> Reply[HeartbeatResponse]:
        """While the group is loading this is no error: the member is to stay as it is."""
        future = self._tasks.future()

        def settle(code: ErrorCode) -> None:
            loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            _settle(future, HeartbeatResponse(error_code=ErrorCode.NONE if loading else code))

        def beat(shard: GroupShard, now: Now) -> Decision:
            settle(shard.heartbeat(now, request))
            return Result()

        self._decide(request.group_id, beat, settle)
        return future

    def leave_group(self, request: LeaveGroupRequest, version: int) -> Reply[LeaveGroupResponse]:
        future = self._tasks.future()
        members = request.members
        if version < 3:
            members = [MemberIdentity(member_id=request.member_id)]

        def reply(response: LeaveGroupResponse) -> None:
            _settle(future, response)

        def refuse(code: ErrorCode) -> None:
            reply(LeaveGroupResponse(error_code=code))

        self._decide(
            request.group_id,
            lambda shard, now: shard.leave(now, request.group_id, members, version, reply),
            refuse,
        )
        return future

    # Offsets

    def offset_commit(
        self, request: OffsetCommitRequest, version: int
    ) -> Reply[OffsetCommitResponse]:
        future = self._tasks.future()

        def reply(response: OffsetCommitResponse) -> None:
            _settle(future, response)

        def refuse(code: ErrorCode) -> None:
            reply(OffsetCommitResponse(topics=refuse_commit(request, code)))

        self._decide(
            request.group_id,
            lambda shard, now: shard.commit(now, request, version, reply, refuse),
            refuse,
            nameless=True,
        )
        return future

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, version: int
    ) -> Reply[TxnOffsetCommitResponse]:
        """The group's partition is in the producer's transaction: that has been made sure of."""
        future = self._tasks.future()

        def reply(response: TxnOffsetCommitResponse) -> None:
            _settle(future, response)

        def refuse(code: ErrorCode) -> None:
            reply(refuse_txn_commit(request, code))

        self._decide(
            request.group_id,
            lambda shard, now: shard.txn_commit(now, request, version, reply, refuse),
            refuse,
        )
        return future

    def write_marker(self, partition: int, marker: TransactionMarker) -> Reply[ErrorCode]:
        """Ends a transaction in a partition of `__consumer_offsets`: its offsets count or go."""
        future = self._tasks.future()

        def committed(_: Now) -> None:
            _settle(future, ErrorCode.NONE)

        def failed(_: Now, code: ErrorCode) -> None:
            _settle(future, code)

        try:
            self._host.decide(partition, lambda *_: Result((), committed, failed, marker=marker))
        except KafkaError as error:
            _settle(future, error.code)
        return future

    def offset_fetch(self, request: OffsetFetchRequest, version: int) -> Reply[OffsetFetchResponse]:
        def table_of(group_id: str) -> OffsetTable:
            return self._host.shard(self.partition_for(group_id)).offsets

        return self._now(fetch_offsets(request, version, table_of, self._topics))

    # Questions

    def describe_groups(
        self, request: DescribeGroupsRequest, version: int
    ) -> Reply[DescribeGroupsResponse]:
        """The authorized operations are left out: they are the listener's to know."""
        groups = [self._describe(group_id, version) for group_id in request.groups]
        return self._now(DescribeGroupsResponse(groups=groups))

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        try:
            return self._host.shard(self.partition_for(group_id)).describe(group_id, version)
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code)

    def list_groups(self, request: ListGroupsRequest, version: int) -> Reply[ListGroupsResponse]:
        """The groups coordinated here; other brokers have others."""
        if self._host.loading:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return self._now(ListGroupsResponse(error_code=code))
        wanted = GroupFilter(request.states_filter, request.types_filter)
        groups = [
            listed for shard in self._host.active_shards() for listed in shard.list_groups(wanted)
        ]
        return self._now(ListGroupsResponse(groups=groups))

    # How a request gets to its shard

    def _decide(
        self,
        group_id: str,
        decision: Callable[[GroupShard, Now], Decision],
        refuse: Callable[[ErrorCode], None],
        *,
        nameless: bool = False,
    ) -> None:
        """`nameless`: whether the empty group id is one."""
        if not group_id and not nameless:
            refuse(ErrorCode.INVALID_GROUP_ID)
            return
        try:
            self._host.decide(self.partition_for(group_id), decision)
        except KafkaError as error:
            refuse(coordinator_code(error.code))

    def _now(self, response: T) -> Reply[T]:
        future = self._tasks.future()
        future.set_result(response)
        return future


def _settle(future: Any, response: object) -> None:
    """A caller that has gone away has cancelled its future."""
    if not future.done():
        future.set_result(response)
