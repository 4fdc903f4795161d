"""SyncGroup (key 14): distribute the assignment of a generation."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Buffer, Message, Struct, array, binary, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    """The assignment of one member, in the assignor's own format."""

    member_id: str = string()
    assignment: Buffer = binary()


class SyncGroupRequest(Message, versions="0-5", flexible="4+"):
    """Requests a member's assignment; the leader's request contains all assignments.

    Versions: 3 adds static members, 4 is flexible, 5 checks protocol type and name.
    """

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, versions="0-5", flexible="4+"):
    """The assignment of this member."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignment: Buffer = binary()


API = Api(14, SyncGroupRequest, SyncGroupResponse)
