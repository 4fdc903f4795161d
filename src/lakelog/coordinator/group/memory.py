"""Estimated memory of groups and offsets in bytes, for the share `state` of the budget.

`Member.memory` estimates a member. The constants were measured with `tracemalloc`; a test compares
the sums with a measurement.
"""

from __future__ import annotations

from lakelog.base.memory_budget import text_bytes
from lakelog.coordinator.group.records.classic import GroupMetadataValue
from lakelog.coordinator.group.records.offset import OffsetCommitKey, OffsetCommitValue

GROUP_BYTES = 1536
"""A live group with its timers."""
_STORED_BYTES = 512
_STORED_MEMBER_BYTES = 384
OFFSETS_BYTES = 768
"""A group that has offsets."""
_OFFSET_BYTES = 256
_PENDING_OFFSET_BYTES = 512
ID_GIVEN_OUT_BYTES = 512


def stored_bytes(value: GroupMetadataValue | None) -> int:
    """Return the bytes of a stored generation, without subscriptions (see `Member.memory`)."""
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
    """Return the bytes of a committed offset, with its share of the topic's entry."""
    if value is None:
        return 0
    return _OFFSET_BYTES + text_bytes(value.metadata) + len(key.topic)


def pending_offset_bytes(key: OffsetCommitKey, value: OffsetCommitValue | None) -> int:
    """Return the bytes of an offset of an open transaction, with its transaction's entry."""
    return _PENDING_OFFSET_BYTES + offset_bytes(key, value) + len(key.group)
