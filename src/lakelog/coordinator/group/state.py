"""What the parts of a shard share: its groups, its offsets, and whose turn it is."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.state_budget import StateAccount
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.change_queue import ChangeQueue
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.groups import ClassicGroups
from lakelog.coordinator.group.classic.pending_members import PendingMembers
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.config import GroupConfig, Overrides
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.groups import ConsumerGroups
from lakelog.coordinator.group.consumer.records import ConsumerGroupRecord
from lakelog.coordinator.group.counts import GroupCounts
from lakelog.coordinator.group.limits import NO_MEMORY, TOO_MANY_GROUPS, GroupLimits
from lakelog.coordinator.group.memory import stored_bytes
from lakelog.coordinator.group.newcomers import Newcomer
from lakelog.coordinator.group.offsets.table import OffsetTable
from lakelog.coordinator.group.records import GroupMetadataValue, OffsetRecord, Record
from lakelog.coordinator.group.timers import TimerKey, TimerKind
from lakelog.coordinator.group.topics import Topics
from lakelog.coordinator.shared_count import ShardCount

AnyGroup = ClassicGroup | ConsumerGroup


class _Eviction(NamedTuple):
    size: int
    """Bytes by estimate."""
    is_live: bool
    """Whether it is not of offsets alone."""


class ShardState:
    """Durable, changed by `replay` alone: `offsets`, `stored` (each classic group's last written
    generation) and `consumers`. The rest is built anew by whoever loads the shard."""

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
        self.account = StateAccount(limits.memory)
        self.group_count = ShardCount(limits.groups)
        """Live groups, without those of which only member ids were given out, and those being
        evicted."""
        self.offsets_group_count = ShardCount(limits.offset_groups)
        """Groups with committed offsets, without those being evicted."""
        self.offsets = OffsetTable(self.account, self.offsets_group_count)
        self.stored: dict[str, GroupMetadataValue] = {}
        self.classic = ClassicGroups(self.account, self.group_count)
        self.deadlines: Deadlines[TimerKey] = Deadlines()
        self.changes = ChangeQueue(self.deadlines)
        self.pending = PendingMembers(self.deadlines, self.account, self.group_count)
        self.evicting: dict[str, _Eviction] = {}
        """Groups whose tombstones are on their way to the log."""
        self.next_expiry_ms = 0
        """When to look for what has expired at the earliest, on the monotonic clock."""
        self.expires_soon = False
        """Whether that is when it will be looked for."""
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
            self.has_room_for_group,
            self.has_memory,
            self.account,
            self.group_count,
            counts,
        )

    def replay(self, record: Record) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record)
        elif isinstance(record, ConsumerGroupRecord):
            self.consumers.replay(record)
        else:
            self._replay_generation(record.key.group, record.value)

    def _replay_generation(self, group_id: str, value: GroupMetadataValue | None) -> None:
        old = self.stored.get(group_id)
        self.account.note(group_id, stored_bytes(value) - stored_bytes(old))
        if value is not None:
            self.stored[group_id] = value
        else:
            self.stored.pop(group_id, None)

    def has_room_for_group(self, group_id: str) -> bool:
        """Whether it may have its first member. Groups with offsets are exempt from the limit.

        If there is no room, newcomers are evicted, and groups that are empty and have no offsets
        go soon, in all partitions.
        """
        limits = self.limits
        return (
            not limits.is_full_of_groups
            or self._has_offsets(group_id)
            or limits.make_room_for_group(group_id)
        )

    def has_memory(self, group_id: str, more: int) -> bool:
        """Whether a group may take so many bytes more; newcomers are evicted to make room."""
        if self.account.may_grow(group_id, more):
            return True
        within_share = self.account.of(group_id) + more <= self.limits.memory.share_max
        return within_share and self.limits.has_memory(group_id, more)

    def expire_soon(self) -> None:
        if not self.expires_soon:
            self.expires_soon = True
            self.deadlines.set(TimerKey(TimerKind.EXPIRY), self.next_expiry_ms)

    def check_room_for_offsets(self, group_id: str, more: int) -> None:
        """Raises POLICY_VIOLATION for the first offsets of one group too many, and
        INVALID_COMMIT_OFFSET_SIZE if there is no room for so many bytes more."""
        if (
            self.limits.is_full_of_offsets
            and self.any_group(group_id) is None
            and not self._has_offsets(group_id)
            and not self.limits.make_room_for_offsets(group_id)
        ):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY_GROUPS)
        if not self.has_memory(group_id, more):
            raise KafkaError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, NO_MEMORY)

    def newcomers(self) -> list[Newcomer]:
        return [Newcomer(since, group) for group, since in self.offsets.newcomers.items()]

    def begin_eviction(self, group_id: str) -> None:
        """Stops counting a group whose tombstones are about to be written."""
        assert group_id not in self.evicting
        is_live = group_id in self.classic or group_id in self.consumers.by_id
        eviction = self.evicting[group_id] = _Eviction(self.account.of(group_id), is_live)
        self.limits.memory.leaving += eviction.size
        self.group_count.add(-is_live)
        self.offsets_group_count.add(-1)

    def end_eviction(self, group_id: str) -> None:
        """Counts by what is left of a group: its tombstones are written, or could not be."""
        eviction = self.evicting.pop(group_id, None)
        if eviction is not None:
            self.limits.memory.leaving -= eviction.size
            self.group_count.add(eviction.is_live)
            self.offsets_group_count.add(1)

    def is_deserted(self, group_id: str) -> bool:
        """Whether it has no members, and nothing of it is on its way."""
        if group_id in self.offsets.pending or group_id in self.evicting:
            return False
        if (consumer := self.consumers.by_id.get(group_id)) is not None:
            return not consumer.members
        group = self.classic.get(group_id)
        return group is None or (group.state is GroupState.EMPTY and not group.pending_joins)

    def _has_offsets(self, group_id: str) -> bool:
        return group_id in self.offsets or group_id in self.offsets.pending

    def close(self) -> None:
        """The shard is thrown away, and what it took of memory is free."""
        for group_id in list(self.evicting):
            self.end_eviction(group_id)
        self.group_count.close()
        self.offsets_group_count.close()
        self.account.close()
        self.classic.clear()

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        return self.consumers.by_id.get(group_id)

    def any_group(self, group_id: str) -> AnyGroup | None:
        """None if it does not exist, or only has offsets."""
        consumer = self.consumers.by_id.get(group_id)
        if consumer is not None:
            return consumer
        group = self.classic.get(group_id)
        return None if group is None or self.is_unused(group) else group

    def is_unused(self, group: ClassicGroup) -> bool:
        """Nothing of it was ever written; at most, ids were given out."""
        return (
            group.generation == 0
            and group.state is GroupState.EMPTY
            and not group.members
            and group.group_id not in self.stored
        )

    def forget_if_unused(self, group: ClassicGroup) -> None:
        if self.is_unused(group) and not group.pending_joins:
            self.classic.pop(group.group_id, None)
