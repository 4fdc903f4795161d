"""A consumer group (KIP-848), built from its records only.

The group epoch rises when members, subscriptions or topics change. A new target assignment follows.
Each member then reconciles with its target on its own: it revokes partitions before it gets others.
`owners` contains each partition that a member owns or has not revoked yet; no other member gets it.

    Empty ──▶ Assigning ──the target is in the group's epoch──▶ Reconciling ──all members──▶ Stable

Only `replay` changes a group. A decision applies its records to a copy (`draft`).
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any, NamedTuple

from lakelog.base.memory_budget import text_bytes
from lakelog.coordinator.group.consumer.member import ConsumerMember, Target, target_bytes
from lakelog.coordinator.group.limits import GROUP_BYTES
from lakelog.coordinator.group.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

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
