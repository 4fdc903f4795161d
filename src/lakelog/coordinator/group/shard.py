"""The groups and offsets of one partition of `__consumer_offsets`.

Durable, changed by `replay` alone: the offset table and each group's last written generation.
Soft: the live groups, their timers and who waits for what; `loaded` builds it from the former.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.classic import ClassicGroup, GroupState
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.expiry import expired_offsets
from lakelog.coordinator.group.join import Join, Joins
from lakelog.coordinator.group.leave import Leaves, leave_response, unknown_members
from lakelog.coordinator.group.listing import (
    GroupFilter,
    describe_group,
    group_not_found,
    list_group,
)
from lakelog.coordinator.group.member import SyncReply
from lakelog.coordinator.group.offsets import (
    OffsetTable,
    Topics,
    UncommittedOffsets,
    check_commit,
    plan_commit,
    tombstones,
)
from lakelog.coordinator.group.pending import PendingJoins
from lakelog.coordinator.group.rebalance import Decision, Rebalancer, TimerKey, TimerKind
from lakelog.coordinator.group.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetRecord,
    Record,
    decode_record,
    encode_record,
)
from lakelog.coordinator.group.sync import Syncs
from lakelog.coordinator.group.txn_offsets import (
    as_offset_commit,
    as_txn_response,
    check_txn_commit,
)
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol.describe_groups import DescribedGroup
from lakelog.protocol.heartbeat import HeartbeatRequest
from lakelog.protocol.join_group import JoinGroupResponse
from lakelog.protocol.leave_group import LeaveGroupResponse, MemberIdentity
from lakelog.protocol.list_groups import ListedGroup
from lakelog.protocol.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from lakelog.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from lakelog.protocol.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from lakelog.runtime.api import Random


class GroupShard:
    """Requests that are refused raise `KafkaError`, or are answered through their `reply`."""

    def __init__(self, config: GroupConfig, topics: Topics, random: Random) -> None:
        self._config = config
        self._topics = topics
        self.offsets = OffsetTable()
        self.stored: dict[str, GroupMetadataValue] = {}
        self.groups: dict[str, ClassicGroup] = {}
        self._uncommitted = UncommittedOffsets()
        self._deadlines: Deadlines[TimerKey] = Deadlines()
        self._pending = PendingJoins(self._deadlines)
        self._rebalancer = Rebalancer(config, self._deadlines)
        self._joins = Joins(
            config, self._rebalancer, self._pending, random, self.join, self._forget_if_unused
        )
        self._syncs = Syncs(self._rebalancer)
        self._leaves = Leaves(self._rebalancer, self._pending)

    # What a shard must be (`lakelog.coordinator.shard`)

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        return decode_record(key, value)

    def replay(self, record: Record) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record)
        elif record.value is not None:
            self.stored[record.key.group] = record.value
        else:
            self.stored.pop(record.key.group, None)

    def replay_pending(self, record: Record, producer_id: int) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.pending.add(record, producer_id)

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        self.offsets.replay_end(producer_id, commit=commit)

    def loaded(self, now: Now) -> list[Decision]:
        """Members get a new session: nobody could reach a coordinator while it was loading."""
        results: list[Decision] = []
        for group_id, value in self.stored.items():
            group = self.groups[group_id] = ClassicGroup.from_stored(group_id, value)
            for member in group.members.values():
                self._rebalancer.renew_session(now, group, member)
            if len(group.members) > self._config.members_max:
                results.append(self._rebalancer.prepare(now, group))
        self._schedule_expiry(now)
        return results

    def unloaded(self, code: ErrorCode) -> None:
        for group in self.groups.values():
            for member in group.members.values():
                member.answer_join(JoinGroupResponse(error_code=code, member_id=member.member_id))
                member.answer_sync(SyncGroupResponse(error_code=code))
        self.groups.clear()

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next()

    def advance(self, now: Now) -> list[Decision]:
        results: list[Decision] = []
        while (key := self._deadlines.pop_due(now.tick_ms)) is not None:
            if key.kind is TimerKind.EXPIRY:
                results += self._expire(now)
            elif (group := self.groups.get(key.group_id)) is not None:
                results.append(self._on_timer(now, group, key))
        return results

    def _on_timer(self, now: Now, group: ClassicGroup, key: TimerKey) -> Decision:
        if key.kind is TimerKind.JOIN:
            return self._rebalancer.on_join_time_up(now, group)
        if key.kind is TimerKind.SYNC:
            return self._rebalancer.on_sync_time_up(now, group)
        if key.kind is TimerKind.SESSION:
            return self._rebalancer.on_session_end(now, group, key.member_id)
        self._pending.remove(group, key.member_id)
        decision = self._rebalancer.pending_left(now, group)
        self._forget_if_unused(group)
        return decision

    # Requests of members

    def join(self, now: Now, join: Join) -> Decision:
        group = self.groups.get(join.group_id)
        if group is None:
            if join.member_id:
                return join.refuse(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id)
            group = self.groups[join.group_id] = ClassicGroup(join.group_id)
        decision = self._joins.join(now, group, join)
        self._forget_if_unused(group)
        return decision

    def sync(self, now: Now, request: SyncGroupRequest, reply: SyncReply) -> Decision:
        return self._syncs.sync(now, self._group(request.group_id), request, reply)

    def heartbeat(self, now: Now, request: HeartbeatRequest) -> ErrorCode:
        return self._syncs.heartbeat(now, self._group(request.group_id), request)

    def leave(
        self,
        now: Now,
        group_id: str,
        members: list[MemberIdentity],
        version: int,
        reply: Callable[[LeaveGroupResponse], None],
    ) -> Decision:
        group = self.groups.get(group_id)
        if group is None:
            reply(leave_response(unknown_members(members), version))
            return Result()
        decision, responses = self._leaves.leave(now, group, members)
        self._forget_if_unused(group)

        def committed(_: Now) -> None:
            reply(leave_response(responses, version))

        def failed(_: Now, code: ErrorCode) -> None:
            # The members are gone all the same; only that the group is empty was not written.
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
        group_id = request.group_id
        group = self.groups.get(group_id)
        records, topics = plan_commit(
            request, version, self._topics, self._config.offset_metadata_max, now.wall_ms
        )
        check_commit(group, group_id in self.offsets, request, version)
        if group is not None and (member := group.members.get(request.member_id)) is not None:
            self._rebalancer.renew_session(now, group, member)
        self._uncommitted.begin(group_id)

        def committed(_: Now) -> None:
            self._uncommitted.end(group_id)
            reply(OffsetCommitResponse(topics=topics))

        def failed(_: Now, code: ErrorCode) -> None:
            self._uncommitted.end(group_id)
            refuse(code)

        return Result(records, committed, failed)

    def txn_commit(
        self,
        now: Now,
        request: TxnOffsetCommitRequest,
        version: int,
        reply: Callable[[TxnOffsetCommitResponse], None],
        refuse: Callable[[ErrorCode], None],
    ) -> Decision:
        """Offsets that count when the producer's transaction is committed."""
        group_id = request.group_id
        records, topics = plan_commit(
            *as_offset_commit(request, version),
            self._topics,
            self._config.offset_metadata_max,
            now.wall_ms,
        )
        known = group_id in self.offsets or group_id in self.offsets.pending
        check_txn_commit(self.groups.get(group_id), known, request, version)
        self._uncommitted.begin(group_id)

        def committed(_: Now) -> None:
            self._uncommitted.end(group_id)
            reply(as_txn_response(topics))

        def failed(_: Now, code: ErrorCode) -> None:
            self._uncommitted.end(group_id)
            refuse(code)

        producer = (request.producer_id, request.producer_epoch)
        return Result(records, committed, failed, producer=producer)

    def _group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # Questions

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is not None and self._is_unused(group):
            group = None
        described = describe_group(group_id, group, group_id in self.offsets)
        return described if described is not None else group_not_found(group_id, version)

    def list_groups(self, wanted: GroupFilter) -> Iterator[ListedGroup]:
        groups = dict.fromkeys(self.offsets.group_ids) | {
            group_id: group for group_id, group in self.groups.items() if not self._is_unused(group)
        }
        for group_id, group in groups.items():
            if wanted.accepts(GroupState.EMPTY if group is None else group.state):
                yield list_group(group_id, group)

    # Offsets and groups that are not needed any more

    def topic_deleted(self, topic: str, topic_id: bytes) -> Decision:
        return Result(tombstones(self.offsets.of_topic(topic, topic_id)))

    def _schedule_expiry(self, now: Now) -> None:
        interval_ms = self._config.offsets_retention_check_ms
        self._deadlines.set(TimerKey(TimerKind.EXPIRY), now.tick_ms + interval_ms)

    def _expire(self, now: Now) -> list[Decision]:
        self._schedule_expiry(now)
        group_ids = self.stored.keys() | self.offsets.group_ids
        decisions = [self._expire_group(now, group_id) for group_id in sorted(group_ids)]
        return [decision for decision in decisions if decision.records]

    def _expire_group(self, now: Now, group_id: str) -> Decision:
        """Expired offsets, and the group with the last of them if it has no members."""
        if group_id in self._uncommitted or group_id in self.offsets.pending:
            return Result()
        group = self.groups.get(group_id)
        offsets = self.offsets.of_group(group_id)
        retention_ms = self._config.offsets_retention_ms
        expired = expired_offsets(group_id, group, offsets, now.wall_ms, retention_ms)
        records: list[Record] = [*tombstones(expired)]
        left = sum(map(len, offsets.values())) - len(expired)
        idle = group is None or (group.state is GroupState.EMPTY and not group.pending_joins)
        if left or not idle or group_id not in self.stored:
            return Result(records)
        records.append(GroupRecord(GroupMetadataKey(group=group_id), None))

        def committed(_: Now) -> None:
            current = self.groups.get(group_id)
            if current is group and current is not None and _has_nobody(current):
                del self.groups[group_id]

        return Result(records, committed)

    def _forget_if_unused(self, group: ClassicGroup) -> None:
        if self._is_unused(group) and not group.pending_joins:
            self.groups.pop(group.group_id, None)

    def _is_unused(self, group: ClassicGroup) -> bool:
        """Nothing of it was ever written; at most, ids were given out."""
        return (
            group.generation == 0
            and group.state is GroupState.EMPTY
            and not group.members
            and group.group_id not in self.stored
        )


def _has_nobody(group: ClassicGroup) -> bool:
    return group.state is GroupState.EMPTY and not group.pending_joins
