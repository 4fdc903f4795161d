"""A consumer group (KIP-848), built from its records only.

The group epoch rises when members, subscriptions or topics change. A new target assignment follows.
Each member then reconciles with its target on its own: it revokes partitions before it gets others.
`owners` contains each partition that a member owns or has not revoked yet; no other member gets it.

    Empty ──▶ Assigning ──the target is in the group's epoch──▶ Reconciling ──all members──▶ Stable

Only `replay` changes a group. A decision takes several steps, and each builds on the records of the
steps before. Its `Draft` collects the records and applies them to a copy of the group; only its
records outlive the decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from lakelog.base.memory_budget import text_bytes
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.consumer.member import (
    ConsumerMember,
    Target,
    stored_target,
    target_bytes,
)
from lakelog.coordinator.group.limits import GROUP_BYTES
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

_REGEX_BYTES = 512


class ConsumerGroupState(StrEnum):
    """States by their names in ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(NamedTuple):
    """Matching topics, the version of the metadata, and the time of the search."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """The durable state of one group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.has_partition_metadata = False
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Target] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[tuple[bytes, int], str] = {}
        self.name_counts: Counter[str] = Counter()
        """Number of members that subscribe to a topic by name."""
        self.regex_counts: Counter[str] = Counter()
        self.subscription_bytes = 0
        """Size of all members' subscriptions."""
        self.memory = GROUP_BYTES
        """Estimated memory in bytes."""
        self.refresh_due = True
        """Whether the next heartbeat has to compare the topics with the metadata hash."""

    def copy(self) -> ConsumerGroup:
        """Return a copy that can be changed independently."""
        copy = ConsumerGroup(self.group_id)
        for name, value in vars(self).items():
            setattr(copy, name, value.copy() if isinstance(value, dict) else value)
        return copy

    # Queries

    @property
    def state(self) -> ConsumerGroupState:
        """The state, derived from epochs and members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        reconciled = (
            member.is_reconciled(self.assignment_epoch) for member in self.members.values()
        )
        return ConsumerGroupState.STABLE if all(reconciled) else ConsumerGroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member with an instance id, or None."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        """Return whether no member owns the partition."""
        return (topic_id, partition) not in self.owners

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member subscribes to by name or regular expression (KIP-848)."""
        resolved = self.regexes.get(member.regex)
        return member.topics if resolved is None else member.topics | resolved.topics

    def subscribed_topics(self) -> set[str]:
        """Return the topics that any member subscribes to."""
        return set(self.name_counts).union(*(regex.topics for regex in self.regexes.values()))

    def classic_members(self) -> list[ConsumerMember]:
        """Return the members that use the classic protocol."""
        return [member for member in self.members.values() if member.classic is not None]

    def preferred_assignor(self, default: str) -> str:
        """Return the assignor that most members name; on a tie, the first in alphabetical order."""
        counts = Counter(member.assignor for member in self.members.values() if member.assignor)
        return min(counts, key=lambda name: (-counts[name], name), default=default)

    # Replay

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply a record of this group; a tombstone of something unknown has no effect."""
        key, value = record
        match key:
            case ConsumerGroupMemberMetadataKey():
                self._replay_member(key.member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey():
                self._replay_assignment(key.member_id, value)
            case ConsumerGroupTargetAssignmentMemberKey():
                self._replay_target(key.member_id, value)
            case ConsumerGroupRegularExpressionKey():
                self._replay_regex(key.regular_expression, value)
            case ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None
            case ConsumerGroupMetadataKey():
                epoch: Any = value or ConsumerGroupMetadataValue()
                self.epoch, self.metadata_hash = epoch.epoch, epoch.metadata_hash
            case ConsumerGroupTargetAssignmentMetadataKey():
                target: Any = value or ConsumerGroupTargetAssignmentMetadataValue()
                self.assignment_epoch = target.assignment_epoch
                self.assignment_timestamp_ms = target.assignment_timestamp

    def _replay_member(self, member_id: str, value: Any) -> None:
        old = self.members.get(member_id)
        if value is not None:
            self._put(old, (old or ConsumerMember(member_id)).with_metadata(value))
        elif old is not None:
            self._put(old, None)

    def _replay_assignment(self, member_id: str, value: Any) -> None:
        old = self.members.get(member_id)
        if value is not None:
            self._put(old, (old or ConsumerMember(member_id)).with_assignment(value))
        elif old is not None:
            self._put(old, old.gone())

    def _replay_target(self, member_id: str, value: Any) -> None:
        self.memory -= target_bytes(self.target.get(member_id))
        if value is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = {
                topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
            }
        self.memory += target_bytes(self.target.get(member_id))

    def _replay_regex(self, regex: str, value: Any) -> None:
        self.memory -= _regex_bytes(regex, self.regexes.get(regex))
        if value is None:
            self.regexes.pop(regex, None)
        else:
            topics = frozenset(value.topics)
            self.regexes[regex] = ResolvedRegex(topics, value.version, value.timestamp)
        self.memory += _regex_bytes(regex, self.regexes.get(regex))

    def _put(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        if old is not None:
            self._release(old)
        if new is not None:
            self.members[new.member_id] = new
            if new.instance_id is not None:
                self.static_members[new.instance_id] = new.member_id
            self.owners.update(dict.fromkeys(new.held(), new.member_id))
        elif old is not None:
            del self.members[old.member_id]
        self._recount(old, new)

    def _release(self, old: ConsumerMember) -> None:
        member_id, instance_id = old.member_id, old.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        # Another member may own the partition by now; its entry stays.
        for held in old.held():
            if self.owners.get(held) == member_id:
                del self.owners[held]

    def _recount(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        self.memory += 0 if new is None else new.memory
        self.memory -= 0 if old is None else old.memory
        if old is None or new is None or not old.has_subscription_of(new):
            for member, sign in ((old, -1), (new, 1)):
                self.subscription_bytes += 0 if member is None else sign * member.subscription_bytes
        assert self.subscription_bytes >= 0, "a member left with more than it came with"
        assert self.memory >= GROUP_BYTES, "a member left with more than it came with"
        nothing: frozenset[str] = frozenset()
        before, after = (nothing if member is None else member.topics for member in (old, new))
        if before != after:
            _move(self.name_counts, before, after)
        before, after = (
            nothing if member is None or not member.regex else frozenset((member.regex,))
            for member in (old, new)
        )
        if before != after:
            _move(self.regex_counts, before, after)


def _regex_bytes(regex: str, resolved: ResolvedRegex | None) -> int:
    if resolved is None:
        return 0
    return _REGEX_BYTES + text_bytes(regex) + sum(map(text_bytes, resolved.topics))


def _move(counts: Counter[str], before: frozenset[str], after: frozenset[str]) -> None:
    counts.update(after)
    for name in before:
        assert counts[name] > 0, "a subscription that was not counted has ended"
        counts[name] -= 1
        if not counts[name]:
            del counts[name]


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
