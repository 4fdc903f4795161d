"""ListGroups (key 16): the groups that a broker coordinates."""

from __future__ import annotations

from lakelog.wire.schema import Message, Struct, array, int16, int32, string


class ListGroupsRequest(Message, versions="0-5", flexible="3+"):
    """Asks for all groups, or for those in given states and of given types.

    Versions: 3 is flexible, 4 filters by state, 5 by type (KIP-848). An empty filter passes all.
    """

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    """A group in one line."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Message, versions="0-5", flexible="3+"):
    """Groups of this broker alone; a tool asks every broker."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
