"""The state that the parts of a shard share: groups, offsets, timers, the change queue."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Account
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.change_queue import ChangeQueue
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.groups import ClassicGroups
from lakelog.coordinator.group.classic.pending_members import PendingMembers
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.config import GroupConfig, Overrides
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.groups import ConsumerGroups
from lakelog.coordinator.group.counts import GroupCounts
from lakelog.coordinator.group.limits import NO_MEMORY, TOO_MANY_GROUPS, GroupLimits
from lakelog.coordinator.group.memory import stored_bytes
from lakelog.coordinator.group.offsets.newcomers import Newcomer
from lakelog.coordinator.group.offsets.table import OffsetTable
from lakelog.coordinator.group.records.classic import GroupMetadataValue
from lakelog.coordinator.group.records.codec import Record
from lakelog.coordinator.group.records.consumer import ConsumerGroupRecord
from lakelog.coordinator.group.records.offset import OffsetRecord
from lakelog.coordinator.group.timers import TimerKey, TimerKind
from lakelog.coordinator.group.topics import Topics
from lakelog.coordinator.shared_count import ShardCount

AnyGroup = ClassicGroup | ConsumerGroup


class _Eviction(NamedTuple):
    """A group whose tombstones are being written."""

    size: int
    """Estimated memory in bytes."""
    is_live: bool
    """Whether the group exists beside its offsets, and was counted."""


class ShardState:
    """The groups and offsets of one partition.

    `offsets`, `stored` (the last written generation of each classic group) and `consumers` are
    durable, and only `replay` changes them. The rest is soft state.
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
        self.stored: dict[str, GroupMetadataValue] = {}
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
            self.has_room_for_group,
            self.has_memory,
            self.account,
            self.group_count,
            counts,
        )

    def replay(self, record: Record) -> None:
        """Apply a committed record."""
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record)
        elif isinstance(record, ConsumerGroupRecord):
            self.consumers.replay(record)
        else:
            self._replay_generation(record.key.group, record.value)

    def _replay_generation(self, group_id: str, value: GroupMetadataValue | None) -> None:
        old = self.stored.get(group_id)
        self.account.add(group_id, stored_bytes(value) - stored_bytes(old))
        if value is not None:
            self.stored[group_id] = value
        else:
            self.stored.pop(group_id, None)

    def has_room_for_group(self, group_id: str) -> bool:
        """Return whether the group may have its first member.

        Groups with offsets are exempt from the limit. At the limit, the coordinator begins to evict
        newcomers, and checks soon for expired offsets and empty groups, in all partitions.
        """
        limits = self.limits
        return (
            not limits.is_full_of_groups
            or self._has_offsets(group_id)
            or limits.make_room_for_group(group_id)
        )

    def has_memory(self, group_id: str, more: int) -> bool:
        """Return whether a group may take `more` bytes; begin to evict newcomers if not."""
        if self.account.may_grow(group_id, more):
            return True
        within_share = self.account.of(group_id) + more <= self.limits.memory.owner_max
        return within_share and self.limits.has_memory(group_id, more)

    def expire_soon(self) -> None:
        """Have the next check for expired offsets run as soon as allowed."""
        if not self.expires_soon:
            self.expires_soon = True
            self.deadlines.set(TimerKey(TimerKind.EXPIRY), self.next_expiry_ms)

    def check_room_for_offsets(self, group_id: str, more: int) -> None:
        """Check that a group may have offsets that take `more` bytes.

        Raises `KafkaError(POLICY_VIOLATION)` for a new group if there are too many groups, and
        `KafkaError(INVALID_COMMIT_OFFSET_SIZE)` if there is too little memory.
        """
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
        """Return the groups that may be evicted."""
        return [Newcomer(since, group) for group, since in self.offsets.newcomers.items()]

    def begin_eviction(self, group_id: str) -> None:
        """Stop counting a group whose tombstones are about to be written."""
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

    def _has_offsets(self, group_id: str) -> bool:
        return group_id in self.offsets or group_id in self.offsets.pending

    def close(self) -> None:
        """Return memory and counts of a shard that is dropped."""
        for group_id in list(self.evicting):
            self.end_eviction(group_id)
        self.group_count.close()
        self.offsets_group_count.close()
        self.account.close()
        self.classic.clear()

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        """Return the consumer group, or None."""
        return self.consumers.by_id.get(group_id)

    def any_group(self, group_id: str) -> AnyGroup | None:
        """Return the group of either protocol, or None if it does not exist or has only offsets."""
        consumer = self.consumers.by_id.get(group_id)
        if consumer is not None:
            return consumer
        group = self.classic.get(group_id)
        return None if group is None or self.is_unused(group) else group

    def is_unused(self, group: ClassicGroup) -> bool:
        """Return whether no record of the group exists; it may have pending member ids."""
        return (
            group.generation == 0
            and group.state is GroupState.EMPTY
            and not group.members
            and group.group_id not in self.stored
        )

    def forget_if_unused(self, group: ClassicGroup) -> None:
        """Remove a group that has neither records nor pending member ids."""
        if self.is_unused(group) and not group.pending_joins:
            self.classic.pop(group.group_id, None)
