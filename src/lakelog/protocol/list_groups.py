"""ListGroups (key 16): the groups that a broker coordinates."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, int16, int32, string


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


API = Api(16, ListGroupsRequest, ListGroupsResponse)
