"""Removes groups and offsets of a shard: on request, when they expire, and to free capacity.

DeleteGroups (versions 0 to 3) and OffsetDelete (version 0) remove no group with members, and no
offsets of topics that the group subscribes to. At intervals (`offsets.retention.check.interval.ms`)
expired offsets are deleted; a group without members goes with its last one.

Offsets stay while members may need them (KIP-211, KAFKA-13636). An offset expires when its group
has been empty for the retention time. In a stable group it expires after the retention time if no
member subscribes to its topic. Without a group (simple consumers) it expires after the retention
time. A commit with its own expiry time (OffsetCommit versions 2 to 4) expires at that time instead,
unless its group is in use. The control records of sinks never expire: a batch that one names would
be written again.

When there is no capacity for new groups, probationary groups are evicted: their offsets are deleted
(`offsets.py`). Until their tombstones are committed they take memory, but no longer count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.change_queue import TimerKey, TimerKind
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.config import Topics
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.migration import (
    CONSUMER,
    classic_tombstone,
    consumer_tombstones,
)
from lakelog.coordinator.group.limits import GroupCounts
from lakelog.coordinator.group.offsets import OffsetTable, PartitionOffsets, tombstones
from lakelog.coordinator.group.records import Decision, OffsetCommitKey, OffsetCommitValue, Record
from lakelog.coordinator.group.state import AnyGroup, ShardState
from lakelog.coordinator.shard import Now, Result, Then
from lakelog.protocol.commit_sets import SINK_TOPIC
from lakelog.protocol.consumer_protocol import ConsumerProtocolSubscription, decode_versioned
from lakelog.protocol.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from lakelog.wire.primitives import WireError

_CONSUMER = "consumer"

KeptSince = Callable[[OffsetCommitValue], int]


def expired_offsets(
    group_id: str,
    group: ClassicGroup | ConsumerGroup | None,
    offsets: dict[str, PartitionOffsets],
    now_ms: int,
    retention_ms: int,
) -> list[OffsetCommitKey]:
    """Return the keys of a group's expired offsets (KIP-211).

    Args:
        group: None if the group has offsets only.
        now_ms: milliseconds since the epoch.
        retention_ms: `offsets.retention.minutes`, in milliseconds.
    """
    rule = _rule(group)
    if rule is None:
        return []
    kept_since, subscribed = rule
    return [
        OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        for topic, partitions in offsets.items()
        if topic not in subscribed and topic != SINK_TOPIC
        for partition, value in partitions.items()
        if now_ms >= _expires_at(value, kept_since(value), retention_ms)
    ]


def _expires_at(value: OffsetCommitValue, kept_since_ms: int, retention_ms: int) -> int:
    return value.expire_timestamp if value.expire_timestamp != -1 else kept_since_ms + retention_ms


def _rule(
    group: ClassicGroup | ConsumerGroup | None,
) -> tuple[KeptSince, frozenset[str]] | None:
    """Return when the retention time begins, and the topics whose offsets do not expire.

    None means that no offset expires.
    """
    if isinstance(group, ConsumerGroup):
        return lambda value: value.commit_timestamp, frozenset(group.subscribed_topics())
    if group is None or group.state is GroupState.EMPTY:
        emptied_ms = -1 if group is None else group.state_timestamp_ms
        return lambda value: max(emptied_ms, value.commit_timestamp), frozenset()
    if group.state is not GroupState.STABLE or group.protocol_type != _CONSUMER:
        return None
    subscribed = subscribed_topics(group)
    return None if subscribed is None else (lambda value: value.commit_timestamp, subscribed)


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """Return the topics that members subscribe to, None if a subscription is malformed."""
    topics: set[str] = set()
    for member in group.members.values():
        try:
            subscription = decode_versioned(
                ConsumerProtocolSubscription, member.metadata(group.protocol)
            )
        except WireError:  # the subscribed topics are unknown, so all offsets stay
            return None
        topics.update(subscription.topics)
    return frozenset(topics)


class Deletions:
    """Decisions that delete groups and offsets of one shard."""

    def __init__(self, state: ShardState) -> None:
        self._state = state

    def delete_group(self, group_id: str) -> Decision:
        """Delete a group with its offsets, also offsets of open transactions.

        Raises `KafkaError`: GROUP_ID_NOT_FOUND without group and offsets, NON_EMPTY_GROUP for a
        group with members.
        """
        state = self._state
        group = state.any_group(group_id)
        _check_delete(group, group_id, has_offsets=_has_offsets(state.offsets, group_id))
        records = [*all_offsets(state.offsets, group_id), *group_tombstones(group, group_id)]
        # Also a live group that only has pending members.
        effect = _forgetting(state, state.classic.get(group_id))
        return state.changes.change(group_id, Result(records, ErrorCode.NONE, (effect,)))

    def delete_offsets(self, request: OffsetDeleteRequest) -> Decision:
        """Delete offsets of topics that the group does not subscribe to (KIP-496).

        Raises `KafkaError` with GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if a group with members does
        not use the consumer protocol type, so that its subscriptions are unknown.
        """
        state = self._state
        group = state.any_group(request.group_id)
        if group is None and not _has_offsets(state.offsets, request.group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        read = _topics_read(group)
        records, response = _plan(request, read, state.offsets, state.topics)
        return Result(records, response)


def _forgetting(state: ShardState, group: ClassicGroup | None) -> Then:
    """Return the removal of a live group after its tombstones are committed.

    Until then members that join find the group as the log has it.
    """

    def forget(now: Now) -> None:
        if group is not None:
            # The change of the group has kept back all JoinGroups.
            assert not group.members, "a member joined a deleted group"
            state.classic.pop(group.group_id, None)
            state.pending.remove_all(group)

    return Then(forget)


def _check_delete(group: AnyGroup | None, group_id: str, *, has_offsets: bool) -> None:
    if group is None and not has_offsets:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if isinstance(group, ConsumerGroup):
        empty = not group.members
    else:
        empty = group is None or group.state is GroupState.EMPTY
    if not empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


def group_tombstones(group: AnyGroup | None, group_id: str) -> list[Record]:
    """Return the tombstones of a group, without its offsets."""
    if isinstance(group, ConsumerGroup):
        return consumer_tombstones(group).records
    return [classic_tombstone(group_id)]


def _has_offsets(table: OffsetTable, group_id: str) -> bool:
    """Return whether the group has committed offsets or offsets in open transactions."""
    return group_id in table or group_id in table.pending


def all_offsets(table: OffsetTable, group_id: str) -> list[Record]:
    """Return tombstones of a group's offsets, committed or in open transactions."""
    committed = {
        (topic, partition)
        for topic, partitions in table.of_group(group_id).items()
        for partition in partitions
    }
    keys = [
        OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        for topic, partition in sorted(committed.union(table.pending.of_group(group_id)))
    ]
    return [*tombstones(keys)]


def _plan(
    request: OffsetDeleteRequest,
    read: frozenset[str] | None,
    table: OffsetTable,
    topics: Topics,
) -> tuple[list[Record], OffsetDeleteResponse]:
    """Return the tombstones and the response; with `read` None, all topics may be subscribed."""
    keys: list[OffsetCommitKey] = []
    response = OffsetDeleteResponse()
    for topic in request.topics:
        answer = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(answer)
        for asked in topic.partitions:
            index = asked.partition_index
            code = ErrorCode.NONE
            if not 0 <= index < topics.partition_count(topic.name):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif read is None or topic.name in read:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif _has_offset(table, request.group_id, topic.name, index):
                keys.append(
                    OffsetCommitKey(group=request.group_id, topic=topic.name, partition=index)
                )
            answer.partitions.append(
                OffsetDeleteResponsePartition(partition_index=index, error_code=code)
            )
    return [*tombstones(keys)], response


def _has_offset(table: OffsetTable, group_id: str, topic: str, partition: int) -> bool:
    committed = table.of_group(group_id).get(topic, {})
    return partition in committed or table.pending.is_pending(group_id, topic, partition)


def _topics_read(group: AnyGroup | None) -> frozenset[str] | None:
    """Return the topics that a group subscribes to, None if they are unknown."""
    if isinstance(group, ConsumerGroup):
        return frozenset(group.subscribed_topics())
    if group is None or group.state is GroupState.EMPTY:
        return frozenset()
    if group.protocol_type != CONSUMER:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    return subscribed_topics(group)


@dataclass(frozen=True, slots=True)
class _Removal:
    """The expiry or the eviction of one group, which may have to wait for its changes."""

    key: str
    remove: Callable[[Now], Decision]
    is_exclusive: ClassVar[bool] = True
    timer: ClassVar[None] = None

    def decide_in(self, shard: object, now: Now) -> Decision:
        return self.remove(now)


_PAUSE_MS = 10_000
"""Shortest time between two checks, when groups wait for capacity."""


class Cleanup:
    """The periodic deletion of expired offsets and idle groups of one shard."""

    def __init__(self, state: ShardState) -> None:
        self._state = state

    def schedule(self, now: Now) -> None:
        """Set the timer of the next check."""
        interval_ms = self._state.config.offsets_retention_check_ms
        self._state.next_expiry_ms = now.tick_ms + min(interval_ms, _PAUSE_MS)
        self._state.expires_soon = False
        self._state.deadlines.set(TimerKey(TimerKind.EXPIRY), now.tick_ms + interval_ms)

    def expire(self, now: Now) -> list[Decision]:
        """Return the decisions that delete expired offsets and empty groups."""
        self.schedule(now)
        state = self._state
        group_ids = (
            state.classic.stored.keys() | state.offsets.group_ids | state.consumers.by_id.keys()
        )
        tasks = [
            _Removal(group_id, partial(self.expire_group, group_id=group_id))
            for group_id in sorted(group_ids)
        ]
        decisions = [state.changes.enter(now, task) for task in tasks]
        return [decision for decision in decisions if decision.records]

    def expire_group(self, now: Now, group_id: str) -> Decision:
        """Delete the expired offsets of a group, and an idle group with its last one."""
        state = self._state
        # A marker may bring new offsets, so a group with an open transaction is not idle.
        if group_id in state.offsets.pending:
            return Result()
        group = state.any_group(group_id)
        offsets = state.offsets.of_group(group_id)
        retention_ms = state.config.offsets_retention_ms
        expired = expired_offsets(group_id, group, offsets, now.wall_ms, retention_ms)
        records: list[Record] = [*tombstones(expired)]
        left = sum(map(len, offsets.values())) - len(expired)
        if left or not _is_idle(group):
            return state.changes.change(group_id, Result(records))
        if group_id in state.classic.stored or group_id in state.consumers.by_id:
            records += group_tombstones(group, group_id)
        effect = _forgetting(state, group if isinstance(group, ClassicGroup) else None)
        return state.changes.change(group_id, Result(records, effects=(effect,)))


def _is_idle(group: AnyGroup | None) -> bool:
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group is None or (group.state is GroupState.EMPTY and not group.pending_joins)


class Evictions:
    """Decisions that evict groups of one shard."""

    def __init__(self, state: ShardState, counts: GroupCounts) -> None:
        self._state = state
        self.counts = counts

    def evict(self, now: Now, group_id: str) -> Decision:
        """Delete a group, unless it is in use when the decision is made.

        The decision may wait for changes of the group (`ChangeQueue.enter`).
        """
        task = _Removal(group_id, lambda _: self.evict_now(group_id))
        return self._state.changes.enter(now, task)

    def evict_now(self, group_id: str) -> Decision:
        """Delete a group that nothing blocks, if it is not in use."""
        state = self._state
        # While the decision waited, a member may have joined or another commit may have come.
        if group_id not in state.offsets.probationary_groups or not state.is_deserted(group_id):
            return Result()
        group = state.any_group(group_id)
        records = all_offsets(state.offsets, group_id)
        if group_id in state.classic.stored or group_id in state.consumers.by_id:
            records += group_tombstones(group, group_id)
        state.begin_eviction(group_id)
        forget = _forgetting(state, group if isinstance(group, ClassicGroup) else None)
        end = Then(partial(self._evicted, group_id), lambda now, code: state.end_eviction(group_id))
        return state.changes.change(group_id, Result(records, effects=(forget, end)))

    def _evicted(self, group_id: str, now: Now) -> None:
        self.counts.groups_evicted += 1
        self._state.end_eviction(group_id)
