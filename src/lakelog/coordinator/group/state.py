"""The state that the parts of a shard share: groups, offsets, timers, the change queue."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.memory_budget import Account
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.change_queue import ChangeQueue, TimerKey, TimerKind
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.groups import ClassicGroups, PendingMembers
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.config import GroupConfig, Overrides, Topics
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.groups import ConsumerGroups
from lakelog.coordinator.group.limits import GroupCounts, GroupLimits, ShardLimits
from lakelog.coordinator.group.offsets import OffsetTable, ProbationaryGroup
from lakelog.coordinator.group.records import ConsumerGroupRecord, Decision, OffsetRecord, Record
from lakelog.coordinator.shard import Now, Result, ShardCount

AnyGroup = ClassicGroup | ConsumerGroup


class _Eviction(NamedTuple):
    """A group whose tombstones are being written."""

    size: int
    """Estimated memory in bytes."""
    is_live: bool
    """Whether the group exists beside its offsets, and was counted."""


class ShardState:
    """The groups and offsets of one partition.

    `offsets`, `classic.stored` and `consumers` are durable, and only `replay` changes them. The
    rest is soft state.
    """

    def __init__(
        self,
        config: GroupConfig,
        overrides: Overrides,
        topics: Topics,
        limits: GroupLimits,
        counts: GroupCounts,
    ) -> None:
        self.config = config
        self.limits = limits
        self.topics = topics
        self.account: Account[str] = Account(limits.memory)
        self.group_count = ShardCount(limits.groups)
        """Live groups, without groups that only have pending member ids and groups being
        evicted."""
        self.offsets_group_count = ShardCount(limits.offset_groups)
        """Groups with committed offsets, without those being evicted."""
        self.offsets = OffsetTable(self.account, self.offsets_group_count)
        self.capacity = ShardLimits(limits, self.account, self.offsets.knows)
        self.classic = ClassicGroups(self.account, self.group_count)
        self.deadlines: Deadlines[TimerKey] = Deadlines()
        self.changes = ChangeQueue(self.deadlines)
        self.pending = PendingMembers(self.deadlines, self.account, self.group_count)
        self.evicting: dict[str, _Eviction] = {}
        """Groups whose tombstones are being written."""
        self.next_expiry_ms = 0
        """Earliest time of the next check for expired offsets, on the monotonic clock."""
        self.expires_soon = False
        """Whether the check will run at that time."""
        self.rebalancer = Rebalancer(config, self.deadlines, counts)
        self.consumers = ConsumerGroups(
            config,
            overrides,
            self.deadlines,
            topics,
            self.changes,
            self.classic,
            self.rebalancer,
            self.pending,
            self.capacity,
            self.account,
            self.group_count,
            counts,
        )
        self.consumer_groups = self.consumers.by_id

    def replay(self, record: Record) -> None:
        """Apply a committed record."""
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record)
        elif isinstance(record, ConsumerGroupRecord):
            self.consumers.replay(record)
        else:
            self.classic.replay(record.key.group, record.value)

    def expire_soon(self) -> None:
        """Have the next check for expired offsets run as soon as allowed.

        Such checks are 10 s apart, since each of them visits all groups.
        """
        if not self.expires_soon:
            self.expires_soon = True
            self.deadlines.set(TimerKey(TimerKind.EXPIRY), self.next_expiry_ms)

    def probationary_groups(self) -> list[ProbationaryGroup]:
        """Return the groups that may be evicted."""
        return [
            ProbationaryGroup(since, group)
            for group, since in self.offsets.probationary_groups.items()
        ]

    def begin_eviction(self, group_id: str) -> None:
        """Stop counting a group whose tombstones are about to be written.

        New groups get its capacity at once, not only after the commit. `end_eviction` must follow.
        """
        assert group_id not in self.evicting
        is_live = group_id in self.classic or group_id in self.consumers.by_id
        eviction = self.evicting[group_id] = _Eviction(self.account.of(group_id), is_live)
        self.limits.memory.leaving += eviction.size
        self.group_count.add(-is_live)
        self.offsets_group_count.add(-1)

    def end_eviction(self, group_id: str) -> None:
        """Count the rest of a group: its tombstones are written, or could not be."""
        eviction = self.evicting.pop(group_id, None)
        if eviction is not None:
            self.limits.memory.leaving -= eviction.size
            assert self.limits.memory.leaving >= 0, "an eviction ends once"
            self.group_count.add(eviction.is_live)
            self.offsets_group_count.add(1)

    def is_deserted(self, group_id: str) -> bool:
        """Return whether a group has no members and no records being written."""
        if group_id in self.offsets.pending or group_id in self.evicting:
            return False
        if (consumer := self.consumers.by_id.get(group_id)) is not None:
            return not consumer.members
        group = self.classic.get(group_id)
        return group is None or (group.state is GroupState.EMPTY and not group.pending_joins)

    def close(self) -> None:
        """Return memory and counts of a shard that is dropped."""
        for group_id in list(self.evicting):
            self.end_eviction(group_id)
        self.group_count.close()
        self.offsets_group_count.close()
        self.account.close()
        self.classic.clear()

    def any_group(self, group_id: str) -> AnyGroup | None:
        """Return the group of either protocol, or None if it does not exist or has only offsets."""
        consumer = self.consumer_groups.get(group_id)
        if consumer is not None:
            return consumer
        group = self.classic.get(group_id)
        return None if group is None or self.classic.is_unused(group) else group


class DueTimer(NamedTuple):
    """A timer of a group or a member that has fired.

    It waits in the queue, like a request: a member that a change is about must not expire while
    that change is being written.
    """

    state: ShardState
    timer: TimerKey
    key: str
    is_exclusive: bool

    def decide_in(self, shard: object, now: Now) -> Decision:
        """Return the decision; a timer of a group or a member that has gone decides nothing."""
        state, timer = self.state, self.timer
        if (consumer := state.consumer_groups.get(self.key)) is not None:
            return state.consumers.on_timer(now, consumer, timer)
        group = state.classic.get(self.key)
        if group is None:
            return Result()
        if timer.kind is TimerKind.JOIN:
            return state.rebalancer.on_join_time_up(now, group)
        if timer.kind is TimerKind.SYNC:
            return state.rebalancer.on_sync_time_up(now, group)
        if timer.kind is TimerKind.SESSION:
            return state.rebalancer.on_session_end(now, group, timer.member_id)
        if timer.kind is not TimerKind.PENDING:
            return Result()
        state.pending.remove(group, timer.member_id)
        decision = state.rebalancer.pending_left(now, group)
        state.classic.forget_if_unused(group)
        return decision
