"""Groups: the requests of their members, in both protocols, and those about groups (KIP-848)."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire import schema as wire


class JoinGroupRequestProtocol(wire.Struct):
    """An assignor that the member supports, with the subscription for this assignor."""

    name: str = wire.string()
    metadata: wire.Buffer = wire.binary()


class JoinGroupRequest(wire.Message, versions="0-9", flexible="6+"):
    """Joins a group; the response is sent when all members have joined.

    Versions: 1 adds the rebalance timeout, 4 makes a new member join twice, the second time with
    its assigned id (KIP-394), 5 adds static members (KIP-345), 6 is flexible, 8 the reason.
    """

    group_id: str = wire.string()
    session_timeout_ms: int = wire.int32()
    rebalance_timeout_ms: int = wire.int32("1+", default=-1)
    """The time in which members must rejoin during a rebalance."""
    member_id: str = wire.string()
    """Empty for a new member."""
    group_instance_id: str | None = wire.string("5+", nullable="0+", default=None)
    """The id of a static member, null for a dynamic member."""
    protocol_type: str = wire.string()
    protocols: list[JoinGroupRequestProtocol] = wire.array(JoinGroupRequestProtocol)
    """In order of preference."""
    reason: str | None = wire.string("8+", nullable="0+", default=None)


class JoinGroupResponseMember(wire.Struct):
    """A member with the data that the group's leader needs to assign."""

    member_id: str = wire.string()
    group_instance_id: str | None = wire.string("5+", nullable="0+", default=None)
    metadata: wire.Buffer = wire.binary()


class JoinGroupResponse(wire.Message, versions="0-9", flexible="6+"):
    """The new generation. Only the response to the leader contains the members.

    Versions: 5 adds static members, 6 is flexible, 7 the protocol type and a null protocol name on
    errors, 9 lets a returning static leader skip the assignment (KIP-814).
    """

    throttle_time_ms: int = wire.int32("2+")
    error_code: int = wire.int16()
    generation_id: int = wire.int32(default=-1)
    protocol_type: str | None = wire.string("7+", nullable="0+", default=None)
    protocol_name: str | None = wire.string(nullable="7+")
    """The selected assignor, which all members support."""
    leader: str = wire.string()
    skip_assignment: bool = wire.boolean("9+")
    member_id: str = wire.string()
    members: list[JoinGroupResponseMember] = wire.array(JoinGroupResponseMember)


class SyncGroupRequestAssignment(wire.Struct):
    """The assignment of one member, in the assignor's own format."""

    member_id: str = wire.string()
    assignment: wire.Buffer = wire.binary()


class SyncGroupRequest(wire.Message, versions="0-5", flexible="4+"):
    """Requests a member's assignment; the leader's request contains all assignments.

    Versions: 3 adds static members, 4 is flexible, 5 checks protocol type and name.
    """

    group_id: str = wire.string()
    generation_id: int = wire.int32()
    member_id: str = wire.string()
    group_instance_id: str | None = wire.string("3+", nullable="0+", default=None)
    protocol_type: str | None = wire.string("5+", nullable="0+", default=None)
    protocol_name: str | None = wire.string("5+", nullable="0+", default=None)
    assignments: list[SyncGroupRequestAssignment] = wire.array(SyncGroupRequestAssignment)


class SyncGroupResponse(wire.Message, versions="0-5", flexible="4+"):
    """The assignment of this member."""

    throttle_time_ms: int = wire.int32("1+")
    error_code: int = wire.int16()
    protocol_type: str | None = wire.string("5+", nullable="0+", default=None)
    protocol_name: str | None = wire.string("5+", nullable="0+", default=None)
    assignment: wire.Buffer = wire.binary()


class HeartbeatRequest(wire.Message, versions="0-4", flexible="4+"):
    """Extends a member's session; REBALANCE_IN_PROGRESS announces a rebalance.

    Versions: 3 adds static members, 4 is flexible.
    """

    group_id: str = wire.string()
    generation_id: int = wire.int32()
    member_id: str = wire.string()
    group_instance_id: str | None = wire.string("3+", nullable="0+", default=None)


class HeartbeatResponse(wire.Message, versions="0-4", flexible="4+"):
    """The result."""

    throttle_time_ms: int = wire.int32("1+")
    error_code: int = wire.int16()


class MemberIdentity(wire.Struct):
    """A member by its id, or by its instance id with an empty member id."""

    member_id: str = wire.string()
    group_instance_id: str | None = wire.string(nullable="0+", default=None)
    reason: str | None = wire.string("5+", nullable="0+", default=None)


class LeaveGroupRequest(wire.Message, versions="0-5", flexible="4+"):
    """Removes one member, or from version 3 on several, including static members.

    Versions: 4 is flexible, 5 adds a reason.
    """

    group_id: str = wire.string()
    member_id: str = wire.string("0-2")
    members: list[MemberIdentity] = wire.array(MemberIdentity, "3+")


class MemberResponse(wire.Struct):
    """The result for one member."""

    member_id: str = wire.string()
    group_instance_id: str | None = wire.string(nullable="0+")
    error_code: int = wire.int16()


class LeaveGroupResponse(wire.Message, versions="0-5", flexible="4+"):
    """The result; from version 3 on also one for each member."""

    throttle_time_ms: int = wire.int32("1+")
    error_code: int = wire.int16()
    members: list[MemberResponse] = wire.array(MemberResponse, "3+")


class MemberPartitions(wire.Struct):
    """Partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[int] = wire.array(wire.int32)


class ConsumerGroupHeartbeatRequest(wire.Message, versions="0-1", flexible="0+"):
    """Joins a group, stays in it, or leaves it. Null fields are unchanged.

    Versions: 1 adds subscriptions by regular expression, and member ids that clients choose
    (KIP-1082).
    """

    group_id: str = wire.string()
    member_id: str = wire.string()
    member_epoch: int = wire.int32()
    """0: join, -1: leave, -2: leave temporarily (static members), else the member's epoch."""
    instance_id: str | None = wire.string(nullable="0+", default=None)
    rack_id: str | None = wire.string(nullable="0+", default=None)
    rebalance_timeout_ms: int = wire.int32(default=-1)
    """Maximum time in which the member must revoke partitions."""
    subscribed_topic_names: list[str] | None = wire.array(wire.string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = wire.string("1+", nullable="1+", default=None)
    server_assignor: str | None = wire.string(nullable="0+", default=None)
    topic_partitions: list[MemberPartitions] | None = wire.array(
        MemberPartitions, nullable="0+", default=None
    )
    """The partitions that the member owns."""


class MemberAssignment(wire.Struct):
    """All partitions that the member may read now."""

    topic_partitions: list[MemberPartitions] = wire.array(MemberPartitions)


class ConsumerGroupHeartbeatResponse(wire.Message, versions="0-1", flexible="0+"):
    """The member's epoch, and its assignment if it has changed."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text(default=None)
    member_id: str | None = wire.string(nullable="0+", default=None)
    member_epoch: int = wire.int32()
    heartbeat_interval_ms: int = wire.int32()
    assignment: MemberAssignment | None = wire.struct(MemberAssignment, nullable="0+", default=None)


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
    Api(11, JoinGroupRequest, JoinGroupResponse),
    Api(12, HeartbeatRequest, HeartbeatResponse),
    Api(13, LeaveGroupRequest, LeaveGroupResponse),
    Api(14, SyncGroupRequest, SyncGroupResponse),
    Api(68, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    Api(10, FindCoordinatorRequest, FindCoordinatorResponse),
    Api(15, DescribeGroupsRequest, DescribeGroupsResponse),
    Api(16, ListGroupsRequest, ListGroupsResponse),
    Api(42, DeleteGroupsRequest, DeleteGroupsResponse),
    Api(69, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
)
