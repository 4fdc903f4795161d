"""Drafts: a consumer group with the records of a decision that is being made.

A decision takes several steps, and each builds on the records of the steps before. The draft
collects the records and applies them to a copy of the group. Only its records outlive the decision.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.consumer.group import ConsumerGroup, ResolvedRegex
from lakelog.coordinator.group.consumer.member import ConsumerMember, Target, stored_target
from lakelog.coordinator.group.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    Record,
)
from lakelog.wire.schema import Message


class Draft:
    """A consumer group in a decision.

    `live` is the committed group. `group` is `live` until the first record, then a copy.

    Args:
        retires: the classic group that this group replaces.
        records: records to write before all others.
    """

    def __init__(
        self,
        live: ConsumerGroup,
        *,
        retires: ClassicGroup | None = None,
        records: Iterable[Record] = (),
    ) -> None:
        self.live = self.group = live
        self.retires = retires
        self.records: list[Record] = list(records)

    @property
    def group_id(self) -> str:
        """Id of the group."""
        return self.group.group_id

    def add(self, key: ConsumerGroupKey, value: Message | None) -> None:
        """Write a record; None is a tombstone."""
        # Most heartbeats change nothing, so the copy is made for the first record only.
        if self.group is self.live:
            self.group = self.live.copy()
        record = ConsumerGroupRecord(key, value)
        self.records.append(record)
        self.group.replay(record)

    def put_member(self, member: ConsumerMember) -> None:
        """Write a member's subscription."""
        key = ConsumerGroupMemberMetadataKey(group_id=self.group_id, member_id=member.member_id)
        self.add(key, member.metadata_value())

    def put_assignment(self, member: ConsumerMember) -> None:
        """Write a member's current assignment and epoch."""
        # A replay of the records before this one must not find an owner without a subscription.
        assert member.member_id in self.group.members, "the subscription comes first"
        key = ConsumerGroupCurrentMemberAssignmentKey(
            group_id=self.group_id, member_id=member.member_id
        )
        self.add(key, member.assignment_value())

    def put_target(self, member_id: str, target: Target) -> None:
        """Write a member's target assignment."""
        assert member_id in self.group.members, "partitions would have no owner"
        key = ConsumerGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=member_id)
        value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=stored_target(target))
        self.add(key, value)

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        """Write the group's epoch."""
        assert epoch >= self.group.epoch, "the group epoch went back"
        key = ConsumerGroupMetadataKey(group_id=self.group_id)
        self.add(key, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))

    def put_target_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """Write the epoch of the target assignment, and the time of its computation.

        The time is in milliseconds since the epoch; 0 allows the next assignment at once.
        """
        assert self.group.assignment_epoch <= epoch <= self.group.epoch
        key = ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id)
        value = ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        )
        self.add(key, value)

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Write the topics that match a regular expression; None deletes the expression."""
        key = ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex)
        if resolved is None:
            self.add(key, None)
            return
        value = ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics),
            version=resolved.version,
            timestamp=resolved.timestamp_ms,
        )
        self.add(key, value)

    def delete_partition_metadata(self) -> None:
        """Delete a record that only older brokers write."""
        self.add(ConsumerGroupPartitionMetadataKey(group_id=self.group_id), None)

    def remove_member(self, member_id: str) -> None:
        """Delete a member, its current assignment first.

        A replay of any prefix of the records then never removes a member that owns partitions.
        """
        assert member_id in self.group.members, "a member is removed once"
        ids = {"group_id": self.group_id, "member_id": member_id}
        self.add(ConsumerGroupCurrentMemberAssignmentKey(**ids), None)
        self.add(ConsumerGroupTargetAssignmentMemberKey(**ids), None)
        self.add(ConsumerGroupMemberMetadataKey(**ids), None)

    def delete_group(self) -> None:
        """Delete the group with all members."""
        for member_id in list(self.group.members):
            self.remove_member(member_id)
        assert not self.group.owners, "a partition of a deleted group would never be free"
        self.add(ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id), None)
        for regex in list(self.group.regexes):
            self.put_regex(regex, None)
        if self.group.has_partition_metadata:
            self.delete_partition_metadata()
        self.add(ConsumerGroupMetadataKey(group_id=self.group_id), None)
