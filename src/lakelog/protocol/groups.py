"""The groups: their coordinator, their state and their deletion."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire import schema as wire


class FindCoordinatorRequest(wire.Message, versions="0-6", flexible="3+"):
    """Requests the coordinator of one key, or from version 4 on of several keys of one type.

    Versions: 0 supports groups only, 1 adds the type of the key, 3 is flexible, 4 allows several
    keys (KIP-699), 6 allows share groups.
    """

    key: str = wire.string("0-3")
    key_type: int = wire.int8("1+")
    """0: group, 1: transaction, 2: share group."""
    coordinator_keys: list[str] = wire.array(wire.string, "4+")


class Coordinator(wire.Struct):
    """The coordinator of one key, or an error."""

    key: str = wire.string()
    node_id: int = wire.int32()
    host: str = wire.string()
    port: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()


class FindCoordinatorResponse(wire.Message, versions="0-6", flexible="3+"):
    """The coordinators: up to version 3 one in the response's own fields, then one for each key."""

    throttle_time_ms: int = wire.int32("1+")
    error_code: int = wire.int16("0-3")
    error_message: str | None = wire.error_text("1-3")
    node_id: int = wire.int32("0-3")
    host: str = wire.string("0-3")
    port: int = wire.int32("0-3")
    coordinators: list[Coordinator] = wire.array(Coordinator, "4+")


class ListGroupsRequest(wire.Message, versions="0-5", flexible="3+"):
    """Requests all groups, or the groups in given states and of given types.

    Versions: 3 is flexible, 4 filters by state, 5 by type (KIP-848). An empty filter matches all.
    """

    states_filter: list[str] = wire.array(wire.string, "4+")
    types_filter: list[str] = wire.array(wire.string, "5+")


class ListedGroup(wire.Struct):
    """A group with its type and state."""

    group_id: str = wire.string()
    protocol_type: str = wire.string()
    group_state: str = wire.string("4+")
    group_type: str = wire.string("5+")


class ListGroupsResponse(wire.Message, versions="0-5", flexible="3+"):
    """The groups that this broker coordinates; a client queries every broker."""

    throttle_time_ms: int = wire.int32("1+")
    error_code: int = wire.int16()
    groups: list[ListedGroup] = wire.array(ListedGroup)


class DescribeGroupsRequest(wire.Message, versions="0-6", flexible="5+"):
    """Requests groups that this broker coordinates.

    Versions: 3 adds permitted operations, 5 is flexible.
    """

    groups: list[str] = wire.array(wire.string)
    include_authorized_operations: bool = wire.boolean("3+")


class DescribedGroupMember(wire.Struct):
    """A member with subscription and assignment, in the assignor's own formats."""

    member_id: str = wire.string()
    group_instance_id: str | None = wire.string("4+", nullable="0+", default=None)
    client_id: str = wire.string()
    client_host: str = wire.string()
    member_metadata: wire.Buffer = wire.binary()
    member_assignment: wire.Buffer = wire.binary()


class DescribedGroup(wire.Struct):
    """A group, its state and its members."""

    error_code: int = wire.int16()
    error_message: str | None = wire.error_text("6+", default=None)
    group_id: str = wire.string()
    group_state: str = wire.string()
    """PreparingRebalance, CompletingRebalance, Stable, Empty or Dead."""
    protocol_type: str = wire.string()
    protocol_data: str = wire.string()
    """The name of the selected assignor."""
    members: list[DescribedGroupMember] = wire.array(DescribedGroupMember)
    authorized_operations: int = wire.int32("3+", default=-(2**31))
    """One bit per operation; the minimum int32 when not requested."""


class DescribeGroupsResponse(wire.Message, versions="0-6", flexible="5+"):
    """One entry for each group; a group that does not exist has the state "Dead".

    Versions: 4 adds static members, 6 returns GROUP_ID_NOT_FOUND and a message for an
    unknown group (KIP-1043).
    """

    throttle_time_ms: int = wire.int32("1+")
    groups: list[DescribedGroup] = wire.array(DescribedGroup)


OPERATIONS_NOT_ASKED = -(1 << 31)


class ConsumerGroupDescribeRequest(wire.Message, versions="0-1", flexible="0+"):
    """Requests groups of the consumer protocol."""

    group_ids: list[str] = wire.array(wire.string)
    include_authorized_operations: bool = wire.boolean()


class TopicPartitions(wire.Struct):
    """Partitions of one topic."""

    topic_id: bytes = wire.uuid()
    topic_name: str = wire.string()
    partitions: list[int] = wire.array(wire.int32)


class Assignment(wire.Struct):
    """Partitions by topic."""

    topic_partitions: list[TopicPartitions] = wire.array(TopicPartitions)


class Member(wire.Struct):
    """One member, of either protocol."""

    member_id: str = wire.string()
    instance_id: str | None = wire.string(nullable="0+", default=None)
    rack_id: str | None = wire.string(nullable="0+", default=None)
    member_epoch: int = wire.int32()
    client_id: str = wire.string()
    client_host: str = wire.string()
    subscribed_topic_names: list[str] = wire.array(wire.string)
    subscribed_topic_regex: str | None = wire.string(nullable="0+", default=None)
    assignment: Assignment = wire.struct(Assignment)
    """The partitions that the member owns, including partitions that it must revoke."""
    target_assignment: Assignment = wire.struct(Assignment)
    """The partitions that the member will own after reconciliation."""
    member_type: int = wire.int8("1+", default=-1)
    """0: classic protocol, 1: consumer protocol, -1: unknown."""


class DescribedConsumerGroup(wire.Struct):
    """A group with its members, or an error."""

    error_code: int = wire.int16()
    error_message: str | None = wire.error_text(default=None)
    group_id: str = wire.string()
    group_state: str = wire.string()
    group_epoch: int = wire.int32()
    assignment_epoch: int = wire.int32()
    assignor_name: str = wire.string()
    members: list[Member] = wire.array(Member)
    authorized_operations: int = wire.int32(default=OPERATIONS_NOT_ASKED)


class ConsumerGroupDescribeResponse(wire.Message, versions="0-1", flexible="0+"):
    """One entry for each requested group. Versions: 1 adds the member's type (KIP-1099)."""

    throttle_time_ms: int = wire.int32()
    groups: list[DescribedConsumerGroup] = wire.array(DescribedConsumerGroup)


class DeleteGroupsRequest(wire.Message, versions="0-3", flexible="2+"):
    """Deletes groups. Versions: 2 is flexible."""

    groups_names: list[str] = wire.array(wire.string)


class DeletableGroupResult(wire.Struct):
    """The result for one group."""

    group_id: str = wire.string()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text("3+", nullable="3+", default=None)


class DeleteGroupsResponse(wire.Message, versions="0-3", flexible="2+"):
    """One result for each group. Versions: 3 adds the error's message."""

    throttle_time_ms: int = wire.int32()
    results: list[DeletableGroupResult] = wire.array(DeletableGroupResult)


APIS = (
    Api(10, FindCoordinatorRequest, FindCoordinatorResponse),
    Api(15, DescribeGroupsRequest, DescribeGroupsResponse),
    Api(16, ListGroupsRequest, ListGroupsResponse),
    Api(42, DeleteGroupsRequest, DeleteGroupsResponse),
    Api(69, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
)
