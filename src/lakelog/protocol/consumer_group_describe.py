"""ConsumerGroupDescribe (key 69): members of consumer groups and their assignments (KIP-848)."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    error_text,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)

OPERATIONS_NOT_ASKED = -(1 << 31)


class ConsumerGroupDescribeRequest(Message, versions="0-1", flexible="0+"):
    """Requests groups of the consumer protocol."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    """Partitions by topic."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    """One member, of either protocol."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: Assignment = struct(Assignment)
    """The partitions that the member owns, including partitions that it must revoke."""
    target_assignment: Assignment = struct(Assignment)
    """The partitions that the member will own after reconciliation."""
    member_type: int = int8("1+", default=-1)
    """0: classic protocol, 1: consumer protocol, -1: unknown."""


class DescribedGroup(Struct):
    """A group with its members, or an error."""

    error_code: int = int16()
    error_message: str | None = error_text(default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=OPERATIONS_NOT_ASKED)


class ConsumerGroupDescribeResponse(Message, versions="0-1", flexible="0+"):
    """One entry for each requested group. Versions: 1 adds the member's type (KIP-1099)."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)


API = Api(69, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
