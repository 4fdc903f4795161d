"""The group coordinator's interface to the broker: one method for each API.

A method returns a future. Most are done at once; JoinGroup and SyncGroup when the rebalance
completes; OffsetCommit and LeaveGroup when the records are committed. Methods do not raise; a
rejected request gets a response with an error code. No reference into a request's buffer is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Share
from lakelog.coordinator.group.classic.member import (
    SUBSCRIPTION_TOO_LARGE,
    JoinRefusal,
    session_timeout_reason,
)
from lakelog.coordinator.group.config import GroupConfig, Overrides, Topics
from lakelog.coordinator.group.consumer.heartbeat import ConsumerHeartbeat, check_request, refusal
from lakelog.coordinator.group.limits import GroupCounts, GroupLimits
from lakelog.coordinator.group.offset_requests import OffsetCommit, TxnOffsetCommit, fetch_offsets
from lakelog.coordinator.group.offsets import OffsetTable, in_order_of_eviction
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.requests import (
    GroupAdmin,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.host import Coordinator, ShardHost
from lakelog.coordinator.requests import ClientRequest, answered
from lakelog.coordinator.shard import Now, PartitionLogs, Reply, Result, TransactionMarker
from lakelog.protocol import groups as messages
from lakelog.protocol import offsets
from lakelog.runtime.api import Clock, Random, Tasks

GROUP_TOPIC = "__consumer_offsets"


_PAUSE_MS = 1000
"""After a search that found nothing to evict: each search looks at every probationary group."""


class Evictor:
    """Searches the groups of all loaded partitions."""

    def __init__(self, host: ShardHost[GroupShard]) -> None:
        self._host = host
        self._next_search_ms = 0

    def evict(self, keep: str, groups: int, size: int) -> None:
        """Begin to delete probationary groups, if possible as many as wanted.

        A group is chosen while either number is not reached. After a search without a result the
        next one is 1 s later.

        Args:
            keep: id of the group that the capacity is for.
            groups: number of groups to delete.
            size: estimated bytes of memory to free.
        """
        now = self._host.now()
        if now.tick_ms < self._next_search_ms:
            return
        shards = self._host.active_shards()
        probationary_groups = [
            probationary_group
            for shard in shards
            for probationary_group in shard.state.probationary_groups()
        ]
        chosen = 0
        for _, group_id in in_order_of_eviction(probationary_groups, now.wall_ms):
            if chosen >= groups and size <= 0:
                break
            partition = self._host.partition_for(group_id)
            state = self._host.shard(partition).state
            if group_id != keep and state.is_deserted(group_id):
                chosen += 1
                size -= state.account.of(group_id)
                self._host.decide(partition, partial(_evict, group_id))
        if not chosen:
            self._next_search_ms = now.tick_ms + _PAUSE_MS


def _evict(group_id: str, shard: GroupShard, now: Now) -> Decision:
    return shard.evictions.evict(now, group_id)


@dataclass(slots=True, kw_only=True, eq=False)
class _EndOffsets(ClientRequest):
    """The end of a transaction in one partition: its offsets are applied or dropped."""

    marker: TransactionMarker

    def decide(self, shard: GroupShard, now: Now) -> Decision:
        return Result(reply=ErrorCode.NONE, marker=self.marker)


def _no_overrides(_: str) -> Mapping[str, int]:
    return {}


class GroupCoordinator(Coordinator[GroupShard]):
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
        self.admin = GroupAdmin(self._host, tasks, config.consumer)

    @property
    def group_count(self) -> int:
        """Number of groups that have or had members, in the loaded partitions."""
        return self._limits.groups.total

    def _expire_soon(self) -> None:
        for partition in self._host.partitions:
            with suppress(KafkaError):  # groups of a loading partition do not count yet
                self._host.decide(partition, lambda shard, _: shard.expire_soon())

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

    # Members

    def consumer_group_heartbeat(
        self,
        request: messages.ConsumerGroupHeartbeatRequest,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Reply[messages.ConsumerGroupHeartbeatResponse]:
        """Decide ConsumerGroupHeartbeat (KIP-848); `client_host` as for `join_group`.

        Errors have a message for the user. The response comes when the change is committed.
        """
        future = self._tasks.future()
        asked = ConsumerHeartbeat(
            future=future,
            key=request.group_id,
            request=request,
            client_id=client_id,
            client_host=client_host,
        )
        try:
            if not self._config.consumer.is_enabled:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            check_request(request, version, self._config.consumer.assignors)
        except KafkaError as error:
            asked.answer(refusal(error))
        else:
            self._host.ask(asked)
        return future

    def join_group(
        self,
        request: messages.JoinGroupRequest,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Reply[messages.JoinGroupResponse]:
        """Decide JoinGroup (KIP-62, static members: KIP-345, member ids: KIP-394).

        The response comes when the rebalance completes. DescribeGroups shows `client_host`, which
        is `/` and the address.
        """
        future = self._tasks.future()
        join = JoinGroup.of(request, version, client_id, client_host, future, self._join_refused)
        shortest, longest = self._config.session_timeout_min_ms, self._config.session_timeout_max_ms
        if request.group_id and not shortest <= request.session_timeout_ms <= longest:
            reason = session_timeout_reason(request.session_timeout_ms, shortest, longest)
            code = ErrorCode.INVALID_SESSION_TIMEOUT
            join.answer(join.refusal(code, join.member_id, reason))
        elif not join.member_id and join.subscription_bytes > self._config.subscriptions_bytes_max:
            code = ErrorCode.GROUP_MAX_SIZE_REACHED
            join.answer(join.refusal(code, reason=SUBSCRIPTION_TOO_LARGE))
        else:
            self._host.ask(join)
        return future

    def sync_group(
        self, request: messages.SyncGroupRequest, version: int
    ) -> Reply[messages.SyncGroupResponse]:
        """Decide SyncGroup (KIP-62, protocol type and name: KIP-559).

        The response comes when the leader's assignment is committed.
        """
        return self._ask(SyncGroup.of(request, self._tasks.future()))

    def heartbeat(
        self, request: messages.HeartbeatRequest, version: int
    ) -> Reply[messages.HeartbeatResponse]:
        """Decide Heartbeat (KIP-62). While the group is loading, the response has no error code."""
        future = self._tasks.future()
        return self._ask(Heartbeat(future=future, key=request.group_id, request=request))

    def leave_group(
        self, request: messages.LeaveGroupRequest, version: int
    ) -> Reply[messages.LeaveGroupResponse]:
        """Decide LeaveGroup (several members at once: KIP-345).

        Errors are codes in the response, from version 3 on one for each member.
        """
        future = self._tasks.future()
        members = request.members
        if version < 3:
            members = [messages.MemberIdentity(member_id=request.member_id)]
        return self._ask(
            LeaveGroup(future=future, key=request.group_id, members=members, version=version)
        )

    # Offsets

    def offset_commit(
        self, request: offsets.OffsetCommitRequest, version: int
    ) -> Reply[offsets.OffsetCommitResponse]:
        """Decide OffsetCommit; the reply comes when the offsets are committed."""
        future = self._tasks.future()
        return self._ask(
            OffsetCommit(future=future, key=request.group_id, request=request, version=version)
        )

    def txn_offset_commit(
        self, request: offsets.TxnOffsetCommitRequest, version: int
    ) -> Reply[offsets.TxnOffsetCommitResponse]:
        """Decide TxnOffsetCommit (KIP-98, group metadata: KIP-447); see `TxnOffsetCommit`."""
        future = self._tasks.future()
        return self._ask(
            TxnOffsetCommit(future=future, key=request.group_id, request=request, version=version)
        )

    def write_marker(self, partition: int, marker: TransactionMarker) -> Reply[ErrorCode]:
        """End a transaction in a partition of `__consumer_offsets`: apply or drop its offsets.

        Return NONE once the marker is committed, otherwise the error code; nothing is raised.
        """
        future = self._tasks.future()
        request = _EndOffsets(future=future, key="", marker=marker)
        try:
            self._host.decide(partition, request.decide, request)
        except KafkaError as error:
            request.refuse(error.code)
        return future

    def offset_fetch(
        self, request: offsets.OffsetFetchRequest, version: int
    ) -> Reply[offsets.OffsetFetchResponse]:
        """Return committed offsets (several groups: KIP-709, unstable offsets: KIP-447).

        Errors are codes in the response, for each group from version 8 on.
        """

        def table_of(group: offsets.OffsetFetchRequestGroup) -> OffsetTable:
            shard = self._host.shard_of(group.group_id, allows_empty=True)
            return shard.queries.offsets_for(group)

        return answered(self._tasks, fetch_offsets(request, version, table_of, self._topics))
