"""Counters of the groups in all partitions of a broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupCounts:
    """Counters since the start of the broker."""

    members_expired: int = 0
    """Members that were removed because they timed out."""
    groups_evicted: int = 0
    """Groups whose offsets were deleted to make room for other groups."""
