"""The requests of members of groups, of the classic and of the consumer protocol (KIP-848)."""

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


class TopicPartitions(wire.Struct):
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
    topic_partitions: list[TopicPartitions] | None = wire.array(
        TopicPartitions, nullable="0+", default=None
    )
    """The partitions that the member owns."""


class Assignment(wire.Struct):
    """All partitions that the member may read now."""

    topic_partitions: list[TopicPartitions] = wire.array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(wire.Message, versions="0-1", flexible="0+"):
    """The member's epoch, and its assignment if it has changed."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text(default=None)
    member_id: str | None = wire.string(nullable="0+", default=None)
    member_epoch: int = wire.int32()
    heartbeat_interval_ms: int = wire.int32()
    assignment: Assignment | None = wire.struct(Assignment, nullable="0+", default=None)


APIS = (
    Api(11, JoinGroupRequest, JoinGroupResponse),
    Api(12, HeartbeatRequest, HeartbeatResponse),
    Api(13, LeaveGroupRequest, LeaveGroupResponse),
    Api(14, SyncGroupRequest, SyncGroupResponse),
    Api(68, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
)
