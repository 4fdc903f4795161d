"""LeaveGroup (key 13): remove members without waiting for their session timeouts."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    """A member by its id, or by its instance id with an empty member id."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="0+", default=None)


class LeaveGroupRequest(Message, versions="0-5", flexible="4+"):
    """Removes one member, or from version 3 on several, including static members.

    Versions: 4 is flexible, 5 adds a reason.
    """

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    """The result for one member."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


class LeaveGroupResponse(Message, versions="0-5", flexible="4+"):
    """The result; from version 3 on also one for each member."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")


API = Api(13, LeaveGroupRequest, LeaveGroupResponse)
