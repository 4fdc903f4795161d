"""FindCoordinator (key 10): which broker coordinates a group or a transactional id."""

from __future__ import annotations

from lakelog.wire.schema import Message, Struct, array, error_text, int8, int16, int32, string


class FindCoordinatorRequest(Message, versions="0-6", flexible="3+"):
    """Asks for the coordinators of one key, or of several of a kind from version 4 on.

    Versions: 0 knows groups only, 1 adds the kind, 3 is flexible, 4 takes many keys (KIP-699), 6
    allows share groups.
    """

    key: str = string("0-3")
    key_type: int = int8("1+")
    """0 group, 1 transaction, 2 share."""
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Struct):
    """The broker for one key, or why none is known."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text()


class FindCoordinatorResponse(Message, versions="0-6", flexible="3+"):
    """Until version 3 one answer in the fields of the response itself, then one per key."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = error_text("1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
