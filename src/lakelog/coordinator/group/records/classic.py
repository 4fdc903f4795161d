"""The record of a classic group's generation in `__consumer_offsets`.

Sources: `GroupMetadataKey.json` and `GroupMetadataValue.json` in the jar kafka-group-coordinator
4.4.0; static members (KIP-345) have their instance id since version 3.
"""

from __future__ import annotations

from typing import NamedTuple

from lakelog.wire.schema import Buffer, Message, Struct, array, binary, int32, int64, string


class GroupMetadataKey(Message, versions="0"):
    """The key of a classic group."""

    group: str = string()


class MemberMetadata(Struct):
    """A member of a generation. Timeouts are milliseconds."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: Buffer = binary()
    assignment: Buffer = binary()


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    """A generation of a classic group with its assignment."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)


class GroupRecord(NamedTuple):
    """The newest generation of a classic group; None is a tombstone."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None
