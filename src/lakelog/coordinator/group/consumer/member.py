"""A member of a consumer group, as its records describe it; never changed, only replaced.

Stable ◀──────── nothing to give up, nothing missing ─────────┐
  │ the target assignment changed                             │
  ├──▶ UnrevokedPartitions: it still has what others are to get, and keeps its epoch
  └──▶ UnreleasedPartitions: it is in the new epoch, but others still have what it is to get
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from lakelog.base.state_budget import text_bytes
from lakelog.coordinator.group.classic.member import Protocols
from lakelog.coordinator.group.consumer.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from lakelog.coordinator.group.memory import protocols_bytes
from lakelog.coordinator.group.subscription_size import protocols_size, topic_names_size

Epochs = Mapping[bytes, Mapping[int, int]]
"""By topic id and partition, the epoch in which it was assigned."""
Target = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""

_MEMBER_BYTES = 1536
_NAME_BYTES = 128
"""Of a topic that a member subscribes to, beside its name."""
_HELD_BYTES = 224
"""Of a partition that a member has: in its assignment and among the owners."""
_TARGET_TOPIC_BYTES = 384
_TARGET_BYTES = 64

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """As it is written."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3
    UNKNOWN = 127
    """Written by a newer version: the member has to begin anew."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        return cls(number) if number in cls.__members__.values() else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What there is to know of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols

    @property
    def protocol(self) -> str:
        """The one it is told that the group uses: none matters, the coordinator assigns."""
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """`member_epoch` 0 has not been given anything yet; -2 is a static member that is away."""

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
    """What it must give up."""
    classic: ClassicSide | None = None

    @property
    def subscription_bytes(self) -> int:
        """What it says of itself; of the names, characters."""
        classic = 0 if self.classic is None else protocols_size(self.classic.protocols)
        names = len(self.instance_id or "") + len(self.rack_id or "")
        return topic_names_size(self.topics) + len(self.regex) + names + classic

    @property
    def memory(self) -> int:
        """Bytes by estimate, with its places among the owners."""
        texts = (self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host)
        held = sum(len(each) for part in (self.assigned, self.pending) for each in part.values())
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

    def says_as(self, other: ConsumerMember) -> bool:
        """Whether nothing was said since, only assigned."""
        return self._said == other._said

    @property
    def _said(self) -> tuple[object, ...]:
        return (self.topics, self.regex, self.classic, self.instance_id, self.rack_id)

    def is_reconciled(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def held(self) -> Iterable[tuple[bytes, int]]:
        """Every partition that nobody else may have."""
        for partitions in (self.assigned, self.pending):
            for topic_id, epochs in partitions.items():
                for partition in epochs:
                    yield topic_id, partition

    def held_since(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which it was assigned; None if it does not have it."""
        for partitions in (self.assigned, self.pending):
            if (epoch := partitions.get(topic_id, {}).get(partition)) is not None:
                return epoch
        return None

    def gone(self) -> ConsumerMember:
        """Without its assignment: what is left when that has been deleted."""
        return replace(
            self, member_epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, pending={}
        )

    def away(self) -> ConsumerMember:
        """A static member that has left and will be back. Its next epochs have nothing to do with
        those before, so commits of before are no longer told by their epoch."""
        assigned = {topic: dict.fromkeys(each, 0) for topic, each in self.assigned.items()}
        return replace(self, member_epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending={})

    def renamed(self, member_id: str) -> ConsumerMember:
        """The same static member in another process."""
        return replace(self, member_id=member_id, member_epoch=JOIN_EPOCH, previous_epoch=0)

    # Records

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
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
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_stored_epochs(self.assigned),
            partitions_pending_revocation=_stored_epochs(self.pending),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_epochs(value.assigned_partitions, value.member_epoch),
            pending=_epochs(value.partitions_pending_revocation, value.member_epoch),
        )


def stored_target(target: Target) -> list[TopicPartition]:
    return [
        TopicPartition(topic_id=topic_id, partitions=sorted(target[topic_id]))
        for topic_id in sorted(target)
    ]


def target_bytes(target: Target | None) -> int:
    """Bytes by estimate."""
    if target is None:
        return 0
    return sum(_TARGET_TOPIC_BYTES + _TARGET_BYTES * len(each) for each in target.values())


def _stored_epochs(epochs: Epochs) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=(partitions := sorted(epochs[topic_id])),
            assignment_epochs=[epochs[topic_id][each] for each in partitions],
        )
        for topic_id in sorted(epochs)
    ]


def _epochs(stored: list[TopicPartitions], member_epoch: int) -> Epochs:
    """Older brokers wrote no epochs: the member's own is the latest they can be."""
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
    protocols = tuple((each.name, bytes(each.metadata)) for each in value.supported_protocols)
    return ClassicSide(value.session_timeout_ms, protocols)
