"""What the parts of a shard share: its groups, its offsets, and whose turn it is."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.classic import ClassicGroup, GroupState
from lakelog.coordinator.group.config import GroupConfig, Overrides
from lakelog.coordinator.group.consumer import ConsumerGroup
from lakelog.coordinator.group.consumer_groups import ConsumerGroups
from lakelog.coordinator.group.consumer_records import ConsumerGroupRecord
from lakelog.coordinator.group.counts import GroupCounts
from lakelog.coordinator.group.offsets import OffsetTable, Topics
from lakelog.coordinator.group.pending import PendingJoins
from lakelog.coordinator.group.rebalance import Rebalancer, TimerKey, TimerKind
from lakelog.coordinator.group.records import GroupMetadataValue, OffsetRecord, Record
from lakelog.coordinator.group.room import TOO_MANY_GROUPS, GroupRoom
from lakelog.coordinator.group.turns import Turns

AnyGroup = ClassicGroup | ConsumerGroup


class ShardState:
    """Durable, changed by `replay` alone: `offsets`, `stored` (each classic group's last written
    generation) and `consumers`. The rest is built anew by whoever loads the shard."""

    def __init__(
        self,
        config: GroupConfig,
        overrides: Overrides,
        topics: Topics,
        room: GroupRoom,
        counts: GroupCounts,
    ) -> None:
        self.config = config
        self.room = room
        self.topics = topics
        self.offsets = OffsetTable()
        self.stored: dict[str, GroupMetadataValue] = {}
        self.classic: dict[str, ClassicGroup] = {}
        self.deadlines: Deadlines[TimerKey] = Deadlines()
        self.turns = Turns(self.deadlines)
        self.pending = PendingJoins(self.deadlines)
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
            self.turns,
            self.classic,
            self.rebalancer,
            self.pending,
            self.has_room_for_group,
            counts,
        )

    def replay(self, record: Record) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record)
        elif isinstance(record, ConsumerGroupRecord):
            self.consumers.replay(record)
        elif record.value is not None:
            self.stored[record.key.group] = record.value
        else:
            self.stored.pop(record.key.group, None)

    @property
    def group_count(self) -> int:
        """Without those of which only member ids were given out."""
        classic = len(self.classic) - self.pending.unjoined_count
        return classic + len(self.consumers.by_id)

    @property
    def offsets_group_count(self) -> int:
        return len(self.offsets)

    def has_room_for_group(self, group_id: str) -> bool:
        """Whether it may have its first member. One with offsets is none too many.

        If there is no room, those that are empty and have no offsets go soon, in all partitions.
        """
        if self._has_offsets(group_id) or not self.room.is_full:
            return True
        if not self.expires_soon:
            self.room.make_room()
        return False

    def expire_soon(self) -> None:
        self.expires_soon = True
        self.deadlines.set(TimerKey(TimerKind.EXPIRY), self.next_expiry_ms)

    def check_room_for_offsets(self, group_id: str) -> None:
        """Raises POLICY_VIOLATION for the first offsets of one group too many."""
        if self.any_group(group_id) is None and not self.has_room_for_group(group_id):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY_GROUPS)

    def _has_offsets(self, group_id: str) -> bool:
        return group_id in self.offsets or group_id in self.offsets.pending

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
