"""DeleteGroups (key 42): deletes empty groups with their offsets (KIP-229)."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, error_text, int16, int32, string


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


API = Api(42, DeleteGroupsRequest, DeleteGroupsResponse)
