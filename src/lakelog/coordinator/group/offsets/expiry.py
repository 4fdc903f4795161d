"""Decides which committed offsets have expired (KIP-211, KAFKA-13636).

Offsets stay while members may need them. An offset expires when its group has been empty for the
retention time. In a stable group it expires after the retention time if no member subscribes to its
topic. Without a group (simple consumers) it expires after the retention time. A commit with its own
expiry time (OffsetCommit versions 2 to 4) expires at that time instead, unless its group is in use.
The control records of sinks never expire: a batch that one names would be written again.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.offsets.table import PartitionOffsets
from lakelog.coordinator.group.records import OffsetCommitKey, OffsetCommitValue
from lakelog.protocol.commit_sets import SINK_TOPIC
from lakelog.protocol.consumer_protocol import ConsumerProtocolSubscription, decode_versioned
from lakelog.wire.errors import WireError

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
