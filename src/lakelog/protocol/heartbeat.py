"""Heartbeat (key 12): keep a member of a classic group alive."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, int16, int32, string


class HeartbeatRequest(Message, versions="0-4", flexible="4+"):
    """Extends a member's session; REBALANCE_IN_PROGRESS announces a rebalance.

    Versions: 3 adds static members, 4 is flexible.
    """

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)


class HeartbeatResponse(Message, versions="0-4", flexible="4+"):
    """The result."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()


API = Api(12, HeartbeatRequest, HeartbeatResponse)
