"""ConsumerGroupHeartbeat (key 68): join, stay in, or leave a consumer group (KIP-848)."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    error_text,
    int16,
    int32,
    string,
    struct,
    uuid,
)


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupHeartbeatRequest(Message, versions="0-1", flexible="0+"):
    """Joins a group, stays in it, or leaves it. Null fields are unchanged.

    Versions: 1 adds subscriptions by regular expression, and member ids that clients choose
    (KIP-1082).
    """

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    """0: join, -1: leave, -2: leave temporarily (static members), else the member's epoch."""
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    """Maximum time in which the member must revoke partitions."""
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable="0+", default=None
    )
    """The partitions that the member owns."""


class Assignment(Struct):
    """All partitions that the member may read now."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Message, versions="0-1", flexible="0+"):
    """The member's epoch, and its assignment if it has changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text(default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)


API = Api(68, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
