"""The groups: their coordinator, their state and their deletion."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import (
    Buffer,
    Message,
    Struct,
    array,
    binary,
    boolean,
    error_text,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)


class FindCoordinatorRequest(Message, versions="0-6", flexible="3+"):
    """Requests the coordinator of one key, or from version 4 on of several keys of one type.

    Versions: 0 supports groups only, 1 adds the type of the key, 3 is flexible, 4 allows several
    keys (KIP-699), 6 allows share groups.
    """

    key: str = string("0-3")
    key_type: int = int8("1+")
    """0: group, 1: transaction, 2: share group."""
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Struct):
    """The coordinator of one key, or an error."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text()


class FindCoordinatorResponse(Message, versions="0-6", flexible="3+"):
    """The coordinators: up to version 3 one in the response's own fields, then one for each key."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = error_text("1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")


class ListGroupsRequest(Message, versions="0-5", flexible="3+"):
    """Requests all groups, or the groups in given states and of given types.

    Versions: 3 is flexible, 4 filters by state, 5 by type (KIP-848). An empty filter matches all.
    """

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    """A group with its type and state."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Message, versions="0-5", flexible="3+"):
    """The groups that this broker coordinates; a client queries every broker."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


class DescribeGroupsRequest(Message, versions="0-6", flexible="5+"):
    """Requests groups that this broker coordinates.

    Versions: 3 adds permitted operations, 5 is flexible.
    """

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    """A member with subscription and assignment, in the assignor's own formats."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: Buffer = binary()
    member_assignment: Buffer = binary()


class DescribedGroup(Struct):
    """A group, its state and its members."""

    error_code: int = int16()
    error_message: str | None = error_text("6+", default=None)
    group_id: str = string()
    group_state: str = string()
    """PreparingRebalance, CompletingRebalance, Stable, Empty or Dead."""
    protocol_type: str = string()
    protocol_data: str = string()
    """The name of the selected assignor."""
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-(2**31))
    """One bit per operation; the minimum int32 when not requested."""


class DescribeGroupsResponse(Message, versions="0-6", flexible="5+"):
    """One entry for each group; a group that does not exist has the state "Dead".

    Versions: 4 adds static members, 6 returns GROUP_ID_NOT_FOUND and a message for an
    unknown group (KIP-1043).
    """

    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)


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


class DescribedConsumerGroup(Struct):
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
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)


class DeleteGroupsRequest(Message, versions="0-3", flexible="2+"):
    """Deletes groups. Versions: 2 is flexible."""

    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    """The result for one group."""

    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = error_text("3+", nullable="3+", default=None)


class DeleteGroupsResponse(Message, versions="0-3", flexible="2+"):
    """One result for each group. Versions: 3 adds the error's message."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


APIS = (
    Api(10, FindCoordinatorRequest, FindCoordinatorResponse),
    Api(15, DescribeGroupsRequest, DescribeGroupsResponse),
    Api(16, ListGroupsRequest, ListGroupsResponse),
    Api(42, DeleteGroupsRequest, DeleteGroupsResponse),
    Api(69, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
)
