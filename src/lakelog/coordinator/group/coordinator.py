"""The group coordinator's interface to the broker: one method for each API.

A method returns a future. Most are done at once; JoinGroup and SyncGroup when the rebalance
completes; OffsetCommit and LeaveGroup when the records are committed. Methods do not raise; a
rejected request gets a response with an error code. No reference into a request's buffer is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Share
from lakelog.coordinator.group.admin import GroupAdmin
from lakelog.coordinator.group.change_queue import Refuse
from lakelog.coordinator.group.classic.join_request import (
    SUBSCRIPTION_TOO_LARGE,
    Join,
    JoinRefusal,
    session_timeout_reason,
)
from lakelog.coordinator.group.config import GroupConfig, Overrides
from lakelog.coordinator.group.consumer.heartbeat import ConsumerHeartbeat, check_request
from lakelog.coordinator.group.evictor import Evictor
from lakelog.coordinator.group.limits import GroupCounts, GroupLimits
from lakelog.coordinator.group.offsets.commit import refuse_commit, refuse_txn_commit
from lakelog.coordinator.group.offsets.fetch import fetch_offsets
from lakelog.coordinator.group.offsets.table import OffsetTable
from lakelog.coordinator.group.queries import GroupFilter
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.group.topics import Topics
from lakelog.coordinator.host import ShardHost
from lakelog.coordinator.replies import answered, settle
from lakelog.coordinator.shard import Now, PartitionLogs, Reply, Result, TransactionMarker
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


def _no_overrides(_: str) -> Mapping[str, int]:
    return {}


class GroupCoordinator:
    """The coordinator of the groups in the loaded partitions.

    Args:
        logs: the partitions of `__consumer_offsets`.
        topics: the current topics of the metadata.
        overrides: returns the settings of one group (configuration resource GROUP).
        memory: the memory share of groups and transactional ids.
        join_refused: called with the reason of a rejected JoinGroup: its response has no field for
            one.
    """

    def __init__(
        self,
        config: GroupConfig,
        clock: Clock,
        tasks: Tasks,
        random: Random,
        logs: PartitionLogs,
        topics: Topics,
        overrides: Overrides = _no_overrides,
        *,
        memory: Share,
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
            lambda *shortage: self._evictor.evict(*shortage),
        )
        self._host = ShardHost(
            GROUP_TOPIC,
            logs,
            clock,
            tasks,
            lambda *_: GroupShard(config, topics, random, overrides, self._limits, self.counts),
            topics,
            config.partitions,
            empty_key_code=ErrorCode.INVALID_GROUP_ID,
            batch_bytes_max=config.batch_bytes_max,
        )
        self._join_refused = join_refused
        self._evictor = Evictor(self._host)
        self.admin = GroupAdmin(self._host, self._submit, tasks, config.consumer)

    # Ownership

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` whose leader coordinates the group."""
        return self._host.partition_for(group_id)

    @property
    def partitions(self) -> list[int]:
        """Partitions that are loaded or being loaded."""
        return self._host.partitions

    @property
    def loading(self) -> list[int]:
        """Partitions that are being loaded."""
        return self._host.loading

    @property
    def groups_owned(self) -> list[str]:
        """Ids of the groups in the loaded partitions."""
        everything = GroupFilter((), ())
        return [
            listed.group_id
            for shard in self._host.active_shards()
            for listed in shard.queries.list_groups(everything)
        ]

    @property
    def group_count(self) -> int:
        """Number of groups that have or had members, in the loaded partitions."""
        return self._limits.groups.total

    def _expire_soon(self) -> None:
        for partition in self._host.partitions:
            with suppress(KafkaError):  # groups of a loading partition do not count yet
                self._host.decide(partition, lambda shard, _: shard.expire_soon())

    def leader_epoch(self, partition: int) -> int | None:
        """Return the leader epoch for which a partition is loaded or being loaded, if it is."""
        return self._host.leader_epoch(partition)

    async def load_partition(self, partition: int, leader_epoch: int) -> None:
        """Load a partition; called when this broker has become its leader.

        Until it returns, requests get `COORDINATOR_LOAD_IN_PROGRESS`. Raises `KafkaError` or
        `OSError` from the log, `CorruptRecord` or `WireError`; the partition then stays unloaded.
        """
        await self._host.load(partition, leader_epoch)

    def unload_partition(self, partition: int) -> None:
        """Unload a partition; called when the leader epoch is over."""
        self._host.unload(partition)

    def close(self) -> None:
        """Unload all partitions; also called when `__consumer_offsets` was deleted."""
        self._host.close()

    def on_topics_changed(self, names: Collection[str], *, are_new: bool) -> None:
        """Note that topics were created, deleted or given partitions.

        Consumer groups assign the changed topics with their members' next heartbeats.
        """
        for shard in self._host.active_shards():
            shard.topics_changed(names, are_new=are_new)

    def on_topics_deleted(self, topics: Iterable[tuple[str, bytes]]) -> None:
        """Delete the offsets committed to these topics, each given by name and id."""
        for name, topic_id in topics:
            for partition in self._host.partitions:
                self._delete_offsets(partition, name, topic_id)

    def _delete_offsets(self, partition: int, name: str, topic_id: bytes) -> None:
        try:
            self._host.decide(partition, lambda shard, _: shard.topic_deleted(name, topic_id))
        except KafkaError as error:
            # A partition that is loading keeps those offsets. OffsetFetch does not return them,
            # because they have the id of the deleted topic.
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
        """Pass a request to the group's shard, which decides it now or after a change in progress.

        Args:
            refuse: called with an error code if the request is rejected.
            exclusive: whether the decision may change a consumer group.
            allows_empty: whether an empty group id is valid.
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
        """Decide ConsumerGroupHeartbeat (KIP-848); `client_host` as for `join_group`.

        Errors have a message for the user. The response comes when the change is committed.
        """
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
        """Decide JoinGroup (KIP-62, static members: KIP-345, member ids: KIP-394).

        The response comes when the rebalance completes. DescribeGroups shows `client_host`, which
        is `/` and the address.
        """
        future = self._tasks.future()
        answer = partial(settle, future)
        join = Join.of(request, version, client_id, client_host, answer, self._join_refused)
        shortest, longest = self._config.session_timeout_min_ms, self._config.session_timeout_max_ms
        if request.group_id and not shortest <= request.session_timeout_ms <= longest:
            reason = session_timeout_reason(request.session_timeout_ms, shortest, longest)
            join.refuse(ErrorCode.INVALID_SESSION_TIMEOUT, join.member_id, reason)
        elif not join.member_id and join.subscription_bytes > self._config.subscriptions_bytes_max:
            join.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, reason=SUBSCRIPTION_TOO_LARGE)
        else:
            self._submit(join.group_id, partial(GroupShard.join, join=join), join.refuse_member)
        return future

    def sync_group(self, request: SyncGroupRequest, version: int) -> Reply[SyncGroupResponse]:
        """Decide SyncGroup (KIP-62, protocol type and name: KIP-559).

        The response comes when the leader's assignment is committed.
        """
        future = self._tasks.future()

        reply = partial(settle, future)

        def refuse(code: ErrorCode) -> None:
            reply(SyncGroupResponse(error_code=code))

        decide = partial(GroupShard.sync, request=request, reply=reply)
        self._submit(request.group_id, decide, refuse)
        return future

    def heartbeat(self, request: HeartbeatRequest, version: int) -> Reply[HeartbeatResponse]:
        """Decide Heartbeat (KIP-62). While the group is loading, the response has no error code."""
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
        """Decide LeaveGroup (several members at once: KIP-345).

        Errors are codes in the response, from version 3 on one for each member.
        """
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
        """Decide OffsetCommit; the reply comes when the offsets are committed.

        A refusal of the whole request is the error code of each of its partitions.
        """
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
        """Decide TxnOffsetCommit (KIP-98, group metadata: KIP-447).

        The caller has verified that the partition is in the transaction (KIP-890).
        """
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
        """End a transaction in a partition of `__consumer_offsets`: apply or drop its offsets.

        Return NONE once the marker is committed, otherwise the error code; nothing is raised.
        """
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
        """Return committed offsets (several groups: KIP-709, unstable offsets: KIP-447).

        Errors are codes in the response, for each group from version 8 on.
        """

        def table_of(group: OffsetFetchRequestGroup) -> OffsetTable:
            shard = self._host.shard_of(group.group_id, allows_empty=True)
            return shard.queries.offsets_for(group)

        return answered(self._tasks, fetch_offsets(request, version, table_of, self._topics))
