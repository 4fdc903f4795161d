"""The groups and offsets of one partition of `__consumer_offsets`.

Durable state is in `state`, and only `replay` changes it: the offset table, the last written
generation of each classic group, and the consumer groups. Live classic groups, timers and waiting
requests are soft state; `loaded` builds them from the durable state.

A group has one protocol at a time. A request of either protocol applies to the existing group: each
method here passes it to the part for that protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.change_queue import Refuse
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.classic.join import Joins
from lakelog.coordinator.group.classic.join_request import Join
from lakelog.coordinator.group.classic.member import SyncReply
from lakelog.coordinator.group.classic.member_requests import (
    Leaves,
    Syncs,
    leave_response,
    unknown_members,
)
from lakelog.coordinator.group.config import GroupConfig, Overrides
from lakelog.coordinator.group.consumer.classic_members import ClassicMembers
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.heartbeat import ConsumerHeartbeat, ConsumerHeartbeats
from lakelog.coordinator.group.consumer.migration import consumer_tombstones
from lakelog.coordinator.group.consumer.offset_access import (
    check_consumer_commit,
    commit_partitions,
)
from lakelog.coordinator.group.limits import GroupCounts, GroupLimits, pending_offset_bytes
from lakelog.coordinator.group.offsets.commit import (
    TOPIC_IDS_SINCE,
    as_offset_commit,
    as_txn_response,
    check_commit,
    check_txn_commit,
    older_code,
    plan_commit,
)
from lakelog.coordinator.group.offsets.table import tombstones
from lakelog.coordinator.group.queries import Queries
from lakelog.coordinator.group.records import (
    Decision,
    OffsetRecord,
    Record,
    decode_record,
    encode_record,
)
from lakelog.coordinator.group.removal import Cleanup, Deletions, Evictions
from lakelog.coordinator.group.state import ShardState
from lakelog.coordinator.group.timers import TimerKey, TimerKind
from lakelog.coordinator.group.topics import Topics
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol.heartbeat import HeartbeatRequest
from lakelog.protocol.join_group import JoinGroupResponse
from lakelog.protocol.leave_group import LeaveGroupResponse, MemberIdentity
from lakelog.protocol.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from lakelog.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from lakelog.protocol.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from lakelog.runtime.api import Random


class GroupShard:
    """Decisions about the groups of one partition.

    Rejected requests raise `KafkaError`, or are answered through their `reply`. Every decision
    about a group passes its `ChangeQueue`.
    """

    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        random: Random,
        overrides: Overrides,
        limits: GroupLimits,
        counts: GroupCounts,
    ) -> None:
        self._config = config
        self._topics = topics
        self.state = state = ShardState(config, overrides, topics, limits, counts)
        self.deadlines = state.deadlines
        self._consumer_groups = state.consumers.by_id
        self._rebalancer = state.rebalancer
        self._changes = state.changes
        self._joins = Joins(
            config,
            state.classic,
            state.rebalancer,
            state.pending,
            state.room,
            random,
            self.join,
        )
        self._syncs = Syncs(state.rebalancer, state.room)
        self._leaves = Leaves(state.rebalancer, state.pending)
        self._heartbeats = ConsumerHeartbeats(state.consumers, random)
        self._classic_members = ClassicMembers(state.consumers, topics, random)
        self._cleanup = Cleanup(state)
        self.evictions = Evictions(state, counts)
        self.deletions = Deletions(state)
        self.queries = Queries(state)

    # The interface of a shard (`lakelog.coordinator.shard`)

    encode = staticmethod(encode_record)
    decode = staticmethod(decode_record)

    def replay(self, record: Record) -> None:
        """Apply a committed record outside of any transaction."""
        self.state.replay(record)

    def replay_pending(self, record: Record, producer_id: int) -> None:
        """Keep an offset of an open transaction; its marker decides (KIP-98)."""
        if isinstance(record, OffsetRecord):
            self.state.offsets.pending.add(record, producer_id)

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        """Apply or drop the pending offsets of a producer's transaction."""
        self.state.offsets.replay_end(producer_id, commit=commit)

    def on_committed(self, now: Now, result: Decision) -> tuple[Decision, ...]:
        """Return nothing: each decision has a callback."""
        return ()

    def on_failed(self, now: Now, result: Decision) -> None:
        """Do nothing: each decision has a callback."""

    def loaded(self, now: Now) -> list[Decision]:
        """Begin to serve with new sessions: while loading, no heartbeat was accepted.

        Return the decisions of rebalances, of groups with more members than now allowed.
        """
        results: list[Decision] = []
        for group_id, value in self.state.classic.stored.items():
            group = self.state.classic[group_id] = ClassicGroup.from_stored(group_id, value)
            for member in group.members.values():
                self._rebalancer.renew_session(now, group, member)
            if len(group.members) > self._config.members_max:
                results.append(self._changes.write(group_id, self._rebalancer.prepare(now, group)))
        self.state.consumers.loaded(now)
        self._cleanup.schedule(now)
        self.state.group_count.open()
        self.state.offsets_group_count.open()
        return results

    def unloaded(self, code: ErrorCode) -> None:
        """Answer all parked requests with `code`, and return memory and counts."""
        for group in self.state.classic.values():
            for member in group.members.values():
                member.answer_join(JoinGroupResponse(error_code=code, member_id=member.member_id))
                member.answer_sync(SyncGroupResponse(error_code=code))
        self._changes.unloaded(code)
        self.state.close()

    def on_due(self, now: Now, key: TimerKey) -> list[Decision]:
        """Return the decisions of a timer that has fired."""
        if key.kind is TimerKind.EXPIRY:
            return self._cleanup.expire(now)
        if key.kind is TimerKind.QUEUE:
            return self._changes.resume(now, key.group_id)
        # Through the queue, like a request: a member that a change is about must not expire while
        # that change is being written.
        decide = partial(self._on_timer, key=key)
        exclusive = key.group_id in self._consumer_groups
        decision = self._changes.enter(
            now, key.group_id, decide, lambda _: None, exclusive=exclusive, timer=key
        )
        return [decision]

    def _on_timer(self, now: Now, key: TimerKey) -> Decision:
        if (consumer := self._consumer_groups.get(key.group_id)) is not None:
            return self.state.consumers.on_timer(now, consumer, key)
        group = self.state.classic.get(key.group_id)
        if group is None:
            return Result()
        if key.kind is TimerKind.JOIN:
            return self._rebalancer.on_join_time_up(now, group)
        if key.kind is TimerKind.SYNC:
            return self._rebalancer.on_sync_time_up(now, group)
        if key.kind is TimerKind.SESSION:
            return self._rebalancer.on_session_end(now, group, key.member_id)
        if key.kind is not TimerKind.PENDING:
            return Result()
        self.state.pending.remove(group, key.member_id)
        decision = self._rebalancer.pending_left(now, group)
        self.state.classic.forget_if_unused(group)
        return decision

    def submit(
        self,
        now: Now,
        *,
        group_id: str,
        decide: Callable[[GroupShard, Now], Decision],
        refuse: Refuse,
        exclusive: bool,
    ) -> Decision:
        """Decide a request when no change of its group blocks it: see `ChangeQueue.enter`."""
        return self._changes.enter(
            now, group_id, partial(decide, self), refuse, exclusive=exclusive
        )

    # Requests of members

    def consumer_heartbeat(self, now: Now, beat: ConsumerHeartbeat) -> Decision:
        """Decide ConsumerGroupHeartbeat (KIP-848).

        Raises `KafkaError` as `ConsumerHeartbeats.heartbeat`.
        """
        return self._heartbeats.heartbeat(now, beat)

    def join(self, now: Now, join: Join) -> Decision:
        """Decide JoinGroup, for a group of either protocol; rejections are answered, not raised."""
        consumer = self._consumer_groups.get(join.group_id)
        if consumer is not None and not consumer.members:
            return self._join_instead(consumer, join)
        if consumer is not None:
            return self._classic_members.join(now, consumer, join)
        return self._joins.join(now, join)

    def _join_instead(self, consumer: ConsumerGroup, join: Join) -> Decision:
        """Delete a consumer group without members, then join a classic group with its name."""

        def committed(now: Now) -> Decision:
            return self.join(now, join)

        def failed(_: Now, code: ErrorCode) -> None:
            join.refuse_member(code)

        records = consumer_tombstones(consumer).records
        return self._changes.change(join.group_id, Result(records, committed, failed))

    def sync(self, now: Now, request: SyncGroupRequest, reply: SyncReply) -> Decision:
        """Decide SyncGroup, for a group of either protocol.

        Raises `KafkaError(UNKNOWN_MEMBER_ID)` for an unknown group, otherwise as `Syncs.sync` and
        `ClassicMembers.sync`.
        """
        consumer = self._consumer_groups.get(request.group_id)
        if consumer is not None:
            return self._classic_members.sync(now, consumer, request, reply)
        return self._syncs.sync(now, self._group(request.group_id), request, reply)

    def heartbeat(self, now: Now, request: HeartbeatRequest) -> ErrorCode:
        """Return the result of Heartbeat, for a group of either protocol.

        Raises `KafkaError` (UNKNOWN_MEMBER_ID) for an unknown group, otherwise as `Syncs.heartbeat`
        and `ClassicMembers.heartbeat`.
        """
        consumer = self._consumer_groups.get(request.group_id)
        if consumer is not None:
            return self._classic_members.heartbeat(now, consumer, request)
        return self._syncs.heartbeat(now, self._group(request.group_id), request)

    def leave(
        self,
        now: Now,
        group_id: str,
        members: list[MemberIdentity],
        version: int,
        reply: Callable[[LeaveGroupResponse], None],
        refuse: Callable[[ErrorCode], None],
    ) -> Decision:
        """Decide LeaveGroup, for a group of either protocol.

        Errors of members are codes in the response; members of an unknown group get
        UNKNOWN_MEMBER_ID.
        """
        consumer = self._consumer_groups.get(group_id)
        if consumer is not None:
            return self._classic_members.leave(now, consumer, members, version, reply, refuse)
        group = self.state.classic.get(group_id)
        if group is None:
            reply(leave_response(unknown_members(members), version))
            return Result()
        decision, responses = self._leaves.leave(now, group, members)
        self.state.classic.forget_if_unused(group)

        def committed(_: Now) -> None:
            reply(leave_response(responses, version))

        def failed(_: Now, code: ErrorCode) -> None:
            # The members have left anyway. Only the record of the empty group was not written.
            reply(leave_response(responses, version))

        return Result(decision.records, committed, failed)

    def commit(
        self,
        now: Now,
        request: OffsetCommitRequest,
        version: int,
        reply: Callable[[OffsetCommitResponse], None],
        refuse: Callable[[ErrorCode], None],
    ) -> Decision:
        """Decide OffsetCommit, for a group of either protocol or none.

        Raises `KafkaError` as `check_commit`, `check_consumer_commit` and
        `ShardLimits.check_offsets`.
        """
        group = self.state.classic.get(request.group_id)
        records, topics = plan_commit(
            request, version, self._topics, self._config.offset_metadata_max, now.wall_ms
        )
        self._check_commit(group, request, version)
        self._check_room(request.group_id, self.state.offsets.growth(records))
        if group is not None and (member := group.members.get(request.member_id)) is not None:
            self._rebalancer.renew_session(now, group, member)

        def committed(_: Now) -> None:
            reply(OffsetCommitResponse(topics=topics))

        def failed(_: Now, code: ErrorCode) -> None:
            refuse(code)

        return Result(records, committed, failed)

    def _check_room(self, group_id: str, more: int) -> None:
        exists = self.state.any_group(group_id) is not None
        self.state.room.check_offsets(group_id, more, exists=exists)

    def _check_commit(
        self, group: ClassicGroup | None, request: OffsetCommitRequest, version: int
    ) -> None:
        consumer = self._consumer_groups.get(request.group_id)
        if consumer is None:
            check_commit(group, request.group_id in self.state.offsets, request, version)
            return
        check_consumer_commit(
            consumer,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            self._partitions(request, version),
            version=version,
        )

    def _partitions(self, request: OffsetCommitRequest, version: int) -> list[tuple[bytes, int]]:
        named = (
            (
                topic.name,
                topic.topic_id,
                (partition.partition_index for partition in topic.partitions),
            )
            for topic in request.topics
        )
        return commit_partitions(self._topics, named, by_id=version >= TOPIC_IDS_SINCE)

    def txn_commit(
        self,
        now: Now,
        request: TxnOffsetCommitRequest,
        version: int,
        reply: Callable[[TxnOffsetCommitResponse], None],
        refuse: Callable[[ErrorCode], None],
    ) -> Decision:
        """Decide TxnOffsetCommit: offsets that are valid once the transaction is committed.

        Raises `KafkaError` as `check_txn_commit`, `check_consumer_commit` and
        `ShardLimits.check_offsets`.
        """
        commit, commit_version = as_offset_commit(request, version)
        records, topics = plan_commit(
            commit, commit_version, self._topics, self._config.offset_metadata_max, now.wall_ms
        )
        self._check_txn_commit(request, version)
        more = sum(pending_offset_bytes(*record) for record in records)
        self._check_room(request.group_id, more)

        def committed(_: Now) -> None:
            reply(as_txn_response(topics))

        def failed(_: Now, code: ErrorCode) -> None:
            refuse(code)

        producer = (request.producer_id, request.producer_epoch)
        return Result(records, committed, failed, producer=producer)

    def _check_txn_commit(self, request: TxnOffsetCommitRequest, version: int) -> None:
        consumer = self._consumer_groups.get(request.group_id)
        if consumer is None:
            offsets = self.state.offsets
            has_offsets = request.group_id in offsets or request.group_id in offsets.pending
            check_txn_commit(
                self.state.classic.get(request.group_id), has_offsets, request, version
            )
            return
        commit, commit_version = as_offset_commit(request, version)
        try:
            check_consumer_commit(
                consumer,
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                self._partitions(commit, commit_version),
                version=None,
            )
        except KafkaError as error:
            raise KafkaError(older_code(error.code, version)) from error

    def _group(self, group_id: str) -> ClassicGroup:
        group = self.state.classic.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # Making room

    def expire_soon(self) -> Decision:
        """Have the next check for expired offsets run as soon as allowed."""
        self.state.expire_soon()
        return Result()

    # Changes of topics

    def topics_changed(self, names: Collection[str], *, are_new: bool) -> None:
        """Note that topics were created, deleted or given partitions."""
        self.state.consumers.topics_changed(names, are_new=are_new)

    def topic_deleted(self, topic: str, topic_id: bytes) -> Decision:
        """Delete the offsets committed to a deleted topic."""
        return Result(tombstones(self.state.offsets.of_topic(topic, topic_id)))
