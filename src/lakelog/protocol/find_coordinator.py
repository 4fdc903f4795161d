"""FindCoordinator (key 10): the coordinators of groups and transactional ids."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, error_text, int8, int16, int32, string


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


API = Api(10, FindCoordinatorRequest, FindCoordinatorResponse)
