"""The group coordinator as a broker calls it: one method for each API, messages in and out.

A method answers through a future: at once for most, when the rebalance completes for JoinGroup
and SyncGroup, when the records are committed for OffsetCommit and LeaveGroup. Nothing is raised
at the caller: a refusal is a response with its code. No reference into a request's buffer is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.state_budget import StateBudget
from lakelog.coordinator.group.admin import GroupAdmin
from lakelog.coordinator.group.change_queue import Refuse
from lakelog.coordinator.group.classic.join import Join
from lakelog.coordinator.group.config import GroupConfig, Overrides
from lakelog.coordinator.group.consumer.heartbeat import ConsumerHeartbeat, check_request
from lakelog.coordinator.group.counts import GroupCounts
from lakelog.coordinator.group.evictor import Evictor
from lakelog.coordinator.group.limits import GroupLimits
from lakelog.coordinator.group.listing import GroupFilter
from lakelog.coordinator.group.offsets.commit import refuse_commit
from lakelog.coordinator.group.offsets.fetch import fetch_offsets
from lakelog.coordinator.group.offsets.table import OffsetTable
from lakelog.coordinator.group.offsets.txn_commit import refuse_txn_commit
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.refusal import SAYS_TOO_MUCH, JoinRefusal
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.group.subscription_size import subscription_size
from lakelog.coordinator.group.topics import Topics
from lakelog.coordinator.host import ShardHost
from lakelog.coordinator.partitioning import partition_for
from lakelog.coordinator.replies import answered, settle
from lakelog.coordinator.shard import Now, PartitionLog, Reply, Result, TransactionMarker
from lakelog.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lakelog.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from lakelog.protocol.join_group import JoinGroupRequest, JoinGroupResponse
from lakelog.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from lakelog.protocol.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from lakelog.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from lakelog.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from lakelog.protocol.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from lakelog.runtime.api import Clock, Random, Tasks

GROUP_TOPIC = "__consumer_offsets"

_PROTOCOL_NAME_NULL_SINCE = 7


def _no_overrides(_: str) -> Mapping[str, int]:
    return {}


class GroupCoordinator:
    """Coordinates the groups of the partitions that have been loaded.

    Args:
        log: the partitions of `__consumer_offsets`.
        topics: those there are.
        overrides: what was set for single groups.
        memory: what all state that clients make may take.
        join_refused: told why, which JoinGroup cannot answer.
    """

    def __init__(
        self,
        config: GroupConfig,
        clock: Clock,
        tasks: Tasks,
        random: Random,
        log: PartitionLog,
        topics: Topics,
        overrides: Overrides = _no_overrides,
        *,
        memory: StateBudget,
        join_refused: Callable[[JoinRefusal], object] = lambda _: None,
    ) -> None:
        self._config = config
        self._tasks = tasks
        self._topics = topics
        self.counts = GroupCounts()
        self.memory = memory
        self._limits = GroupLimits(
            config.groups_max,
            memory,
            self._expire_soon,
            lambda *wanted: self._evictor.evict(*wanted),
        )
        self._host = ShardHost(
            GROUP_TOPIC,
            log,
            clock,
            tasks,
            lambda _: GroupShard(config, topics, random, overrides, self._limits, self.counts),
            self.partition_for,
            empty_key_code=ErrorCode.INVALID_GROUP_ID,
            batch_bytes_max=config.batch_bytes_max,
        )
        self._join_refused = join_refused
        self._evictor = Evictor(self._host, self.partition_for)
        self.admin = GroupAdmin(self._host, self._submit, tasks, config.consumer)

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
    def loading(self) -> list[int]:
        """Partitions whose groups are not known yet."""
        return self._host.loading

    @property
    def groups_owned(self) -> list[str]:
        """Ids of the groups in the partitions that are loaded."""
        everything = GroupFilter((), ())
        return [
            listed.group_id
            for shard in self._host.active_shards()
            for listed in shard.queries.list_groups(everything)
        ]

    @property
    def group_count(self) -> int:
        """Groups that have members, or have had some and are not forgotten."""
        return self._limits.groups.total

    def _expire_soon(self) -> None:
        for partition in self._host.partitions:
            with suppress(KafkaError):  # what is loading is not counted yet
                self._host.decide(partition, lambda shard, _: shard.expire_soon())

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

    def on_topics_changed(self, names: Collection[str], *, are_new: bool) -> None:
        """Topics that were made, deleted, or given partitions; members of consumer groups learn of
        it with their heartbeats."""
        for shard in self._host.active_shards():
            shard.topics_changed(names, are_new=are_new)

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

    # Requests

    def _submit(
        self,
        group_id: str,
        decide: Callable[[GroupShard, Now], Decision],
        refuse: Refuse,
        *,
        exclusive: bool = False,
        allows_empty: bool = False,
    ) -> None:
        """Has the group's shard decide, after the changes of the group that are being written.

        Args:
            exclusive: whether the decision may change a consumer group.
            allows_empty: whether the empty group id names a group.
        """
        queued = partial(
            GroupShard.submit,
            group_id=group_id,
            decide=decide,
            refuse=refuse,
            exclusive=exclusive,
        )
        self._host.submit(group_id, queued, refuse, allows_empty=allows_empty)

    # Members

    def consumer_group_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Reply[ConsumerGroupHeartbeatResponse]:
        """`client_host` as for `join_group`."""
        future = self._tasks.future()

        reply = partial(settle, future)

        def refuse(code: ErrorCode, message: str | None = None) -> None:
            reply(ConsumerGroupHeartbeatResponse(error_code=code, error_message=message))

        beat = ConsumerHeartbeat(request, version, client_id, client_host, reply, refuse)

        def decide(shard: GroupShard, now: Now) -> Decision:
            try:
                return shard.consumer_heartbeat(now, beat)
            except KafkaError as error:
                refuse(error.code, error.message)
                return Result()

        try:
            if not self._config.consumer.is_enabled:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            check_request(request, version, self._config.consumer.assignors)
        except KafkaError as error:
            refuse(error.code, error.message)
        else:
            self._submit(request.group_id, decide, refuse, exclusive=True)
        return future

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
            settle(future, response)

        def refuse(code: ErrorCode) -> None:
            reply(JoinGroupResponse(error_code=code, member_id=request.member_id))

        def explain(code: ErrorCode, reason: str) -> None:
            ids = (request.group_id, request.member_id, client_id, client_host)
            self._join_refused(JoinRefusal(*ids, code, reason))

        shortest, longest = self._config.session_timeout_min_ms, self._config.session_timeout_max_ms
        if request.group_id and not shortest <= request.session_timeout_ms <= longest:
            explain(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"its session.timeout.ms={request.session_timeout_ms} is not within {shortest} to "
                f"{longest}; change it, or group.min.session.timeout.ms and "
                "group.max.session.timeout.ms of the broker",
            )
            refuse(ErrorCode.INVALID_SESSION_TIMEOUT)
        elif not request.member_id and self._says_too_much(request):
            explain(ErrorCode.GROUP_MAX_SIZE_REACHED, SAYS_TOO_MUCH)
            refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        else:
            join = Join.of(request, version, client_id, client_host, reply, explain)
            self._submit(request.group_id, partial(GroupShard.join, join=join), refuse)
        return future

    def _says_too_much(self, request: JoinGroupRequest) -> bool:
        """Whether alone it is more than a group has room for, before anything of it is copied."""
        protocols = ((each.name, each.metadata) for each in request.protocols)
        size = subscription_size(protocols, request.group_instance_id)
        return size > self._config.subscriptions_bytes_max

    def sync_group(self, request: SyncGroupRequest, version: int) -> Reply[SyncGroupResponse]:
        future = self._tasks.future()

        reply = partial(settle, future)

        def refuse(code: ErrorCode) -> None:
            reply(SyncGroupResponse(error_code=code))

        decide = partial(GroupShard.sync, request=request, reply=reply)
        self._submit(request.group_id, decide, refuse)
        return future

    def heartbeat(self, request: HeartbeatRequest, version: int) -> Reply[HeartbeatResponse]:
        """While the group is loading this is no error: the member is to stay as it is."""
        future = self._tasks.future()

        def answer(code: ErrorCode) -> None:
            loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            settle(future, HeartbeatResponse(error_code=ErrorCode.NONE if loading else code))

        def beat(shard: GroupShard, now: Now) -> Decision:
            answer(shard.heartbeat(now, request))
            return Result()

        self._submit(request.group_id, beat, answer)
        return future

    def leave_group(self, request: LeaveGroupRequest, version: int) -> Reply[LeaveGroupResponse]:
        future = self._tasks.future()
        members = request.members
        if version < 3:
            members = [MemberIdentity(member_id=request.member_id)]

        reply = partial(settle, future)

        def refuse(code: ErrorCode) -> None:
            reply(LeaveGroupResponse(error_code=code))

        decide = partial(
            GroupShard.leave,
            group_id=request.group_id,
            members=members,
            version=version,
            reply=reply,
            refuse=refuse,
        )
        self._submit(request.group_id, decide, refuse)
        return future

    # Offsets

    def offset_commit(
        self, request: OffsetCommitRequest, version: int
    ) -> Reply[OffsetCommitResponse]:
        future = self._tasks.future()

        reply = partial(settle, future)

        def refuse(code: ErrorCode) -> None:
            reply(OffsetCommitResponse(topics=refuse_commit(request, code)))

        decide = partial(
            GroupShard.commit, request=request, version=version, reply=reply, refuse=refuse
        )
        self._submit(request.group_id, decide, refuse, allows_empty=True)
        return future

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, version: int
    ) -> Reply[TxnOffsetCommitResponse]:
        """The group's partition is in the producer's transaction: that has been made sure of."""
        future = self._tasks.future()

        reply = partial(settle, future)

        def refuse(code: ErrorCode) -> None:
            reply(refuse_txn_commit(request, code))

        decide = partial(
            GroupShard.txn_commit, request=request, version=version, reply=reply, refuse=refuse
        )
        self._submit(request.group_id, decide, refuse)
        return future

    def write_marker(self, partition: int, marker: TransactionMarker) -> Reply[ErrorCode]:
        """Ends a transaction in a partition of `__consumer_offsets`: its offsets count or go."""
        future = self._tasks.future()

        def committed(_: Now) -> None:
            settle(future, ErrorCode.NONE)

        def failed(_: Now, code: ErrorCode) -> None:
            settle(future, code)

        try:
            self._host.decide(partition, lambda *_: Result((), committed, failed, marker=marker))
        except KafkaError as error:
            settle(future, error.code)
        return future

    def offset_fetch(self, request: OffsetFetchRequest, version: int) -> Reply[OffsetFetchResponse]:
        def table_of(group: OffsetFetchRequestGroup) -> OffsetTable:
            shard = self._host.shard_of(group.group_id, allows_empty=True)
            return shard.queries.offsets_for(group)

        return answered(self._tasks, fetch_offsets(request, version, table_of, self._topics))
