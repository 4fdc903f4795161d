"""Estimated memory of groups, members and offsets in bytes, for the budget `StateBudget`.

The constants were measured with `tracemalloc`; a test compares the sums with a measurement.
"""

from __future__ import annotations

from lakelog.base.state_budget import text_bytes
from lakelog.coordinator.group.classic.member import Member, Protocols
from lakelog.coordinator.group.records import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

GROUP_BYTES = 1536
"""A live group with its timers."""
_MEMBER_BYTES = 1024
"""A member with its session timer."""
_PROTOCOL_BYTES = 256
_STORED_BYTES = 512
_STORED_MEMBER_BYTES = 384
OFFSETS_BYTES = 768
"""A group that has offsets."""
_OFFSET_BYTES = 256
_PENDING_OFFSET_BYTES = 512
ID_GIVEN_OUT_BYTES = 512


def protocols_bytes(protocols: Protocols) -> int:
    """Return the memory of a member's assignors with their subscriptions."""
    return sum(_PROTOCOL_BYTES + len(name) + len(data) for name, data in protocols)


def member_bytes(member: Member) -> int:
    """Return the memory of a classic member, without its assignment (see `stored_bytes`)."""
    names = (member.member_id, member.instance_id, member.client_id, member.client_host)
    return _MEMBER_BYTES + protocols_bytes(member.protocols) + sum(map(text_bytes, names))


def stored_bytes(value: GroupMetadataValue | None) -> int:
    """Return the memory of a stored generation, without subscriptions (see `member_bytes`)."""
    if value is None:
        return 0
    return _STORED_BYTES + sum(
        _STORED_MEMBER_BYTES
        + text_bytes(member.member_id)
        + text_bytes(member.group_instance_id)
        + text_bytes(member.client_id)
        + len(member.assignment)
        for member in value.members
    )


def offset_bytes(key: OffsetCommitKey, value: OffsetCommitValue | None) -> int:
    """Return the memory of a committed offset, with its share of the topic's entry."""
    if value is None:
        return 0
    return _OFFSET_BYTES + text_bytes(value.metadata) + len(key.topic)


def pending_offset_bytes(key: OffsetCommitKey, value: OffsetCommitValue | None) -> int:
    """Return the memory of an offset of an open transaction."""
    return _PENDING_OFFSET_BYTES + offset_bytes(key, value) + len(key.group)
