"""A member of a consumer group, built from its records; immutable.

Stable ◀──────── nothing to revoke, nothing missing ──────────┐
  │ the target assignment changed                             │
  ├──▶ UnrevokedPartitions: it owns partitions of others' targets, and keeps its epoch
  └──▶ UnreleasedPartitions: it is in the new epoch, but others own partitions of its target
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from lakelog.base.memory_budget import text_bytes
from lakelog.coordinator.group.classic.member import Protocols, protocols_bytes, protocols_size
from lakelog.coordinator.group.limits import topic_names_size
from lakelog.coordinator.group.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartition,
    TopicPartitions,
)

Epochs = Mapping[bytes, Mapping[int, int]]
"""The epoch in which each partition was assigned, by topic id and partition."""
Target = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""

_MEMBER_BYTES = 1536
_NAME_BYTES = 128
"""A topic that a member subscribes to, without its name."""
_HELD_BYTES = 224
"""A partition that a member owns: in its assignment and among the group's owners."""
_TARGET_TOPIC_BYTES = 384
_TARGET_BYTES = 64

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """States by their numbers in the log."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3
    UNKNOWN = 127
    """Written by a newer version: the member has to rejoin."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        """Return the state with a number of the log, `UNKNOWN` for a number of a newer version."""
        return cls(number) if number in cls.__members__.values() else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """Additional state of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols

    @property
    def protocol(self) -> str:
        """The assignor in responses to the member; it has no effect, the coordinator assigns."""
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member.

    `member_epoch` is 0 before the first assignment, and -2 for a static member that has left and
    may return.
    """

    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    assigned: Epochs = field(default_factory=dict)
    pending: Epochs = field(default_factory=dict)
    """Partitions that the member has to revoke."""
    classic: ClassicSide | None = None

    @property
    def subscription_bytes(self) -> int:
        """Size of its subscription; names count in characters."""
        classic = 0 if self.classic is None else protocols_size(self.classic.protocols)
        names = len(self.instance_id or "") + len(self.rack_id or "")
        return topic_names_size(self.topics) + len(self.regex) + names + classic

    @property
    def memory(self) -> int:
        """Estimated memory in bytes, with its entries among the group's owners."""
        texts = (self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host)
        held = sum(
            len(partitions)
            for part in (self.assigned, self.pending)
            for partitions in part.values()
        )
        subscription = sum(map(text_bytes, self.topics)) + text_bytes(self.regex)
        classic = 0 if self.classic is None else protocols_bytes(self.classic.protocols)
        return (
            _MEMBER_BYTES
            + sum(map(text_bytes, texts))
            + subscription
            + _NAME_BYTES * len(self.topics)
            + classic
            + _HELD_BYTES * held
        )

    def has_subscription_of(self, other: ConsumerMember) -> bool:
        """Return whether both have the same subscription."""
        return self._subscription == other._subscription

    @property
    def _subscription(self) -> tuple[object, ...]:
        return (self.topics, self.regex, self.classic, self.instance_id, self.rack_id)

    def is_reconciled(self, epoch: int) -> bool:
        """Return whether the member has its target assignment of an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def held(self) -> Iterable[tuple[bytes, int]]:
        """Yield every partition that no other member may own."""
        for partitions in (self.assigned, self.pending):
            for topic_id, epochs in partitions.items():
                for partition in epochs:
                    yield topic_id, partition

    def held_since(self, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch in which a partition was assigned, None if the member has it not."""
        for partitions in (self.assigned, self.pending):
            if (epoch := partitions.get(topic_id, {}).get(partition)) is not None:
                return epoch
        return None

    def gone(self) -> ConsumerMember:
        """Return the member without an assignment, after the tombstone of that."""
        return replace(
            self, member_epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, pending={}
        )

    def away(self) -> ConsumerMember:
        """Return a static member that has left and may return.

        Its next epochs do not continue the earlier ones, so earlier commits can no longer be
        validated by epoch.
        """
        assigned = {
            topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()
        }
        return replace(self, member_epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending={})

    def renamed(self, member_id: str) -> ConsumerMember:
        """Return the same static member for another process."""
        return replace(self, member_id=member_id, member_epoch=JOIN_EPOCH, previous_epoch=0)

    # Records

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        """Return the record of the member's subscription."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=None if self.classic is None else _classic_value(self.classic),
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """Return the member with a stored subscription."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=_classic_side(value.classic_member_metadata),
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Return the record of the member's assignment."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_stored_epochs(self.assigned),
            partitions_pending_revocation=_stored_epochs(self.pending),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """Return the member with a stored assignment."""
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_epochs(value.assigned_partitions, value.member_epoch),
            pending=_epochs(value.partitions_pending_revocation, value.member_epoch),
        )


def stored_target(target: Target) -> list[TopicPartition]:
    """Return a target assignment in the format of the log."""
    return [
        TopicPartition(topic_id=topic_id, partitions=sorted(target[topic_id]))
        for topic_id in sorted(target)
    ]


def target_bytes(target: Target | None) -> int:
    """Return the estimated memory of a target assignment in bytes; 0 without one."""
    if target is None:
        return 0
    return sum(
        _TARGET_TOPIC_BYTES + _TARGET_BYTES * len(partitions) for partitions in target.values()
    )


def _stored_epochs(epochs: Epochs) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=(partitions := sorted(epochs[topic_id])),
            assignment_epochs=[epochs[topic_id][partition] for partition in partitions],
        )
        for topic_id in sorted(epochs)
    ]


def _epochs(stored: list[TopicPartitions], member_epoch: int) -> Epochs:
    """Return assignment epochs; a record of an older broker has none.

    The member's epoch is the latest that they can be.
    """
    result: dict[bytes, dict[int, int]] = {}
    for topic in stored:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        result[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return result


def _classic_value(classic: ClassicSide) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols
        ],
    )


def _classic_side(value: ClassicMemberMetadata | None) -> ClassicSide | None:
    if value is None or not value.supported_protocols:
        return None
    protocols = tuple(
        (protocol.name, bytes(protocol.metadata)) for protocol in value.supported_protocols
    )
    return ClassicSide(value.session_timeout_ms, protocols)
