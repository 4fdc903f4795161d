"""What is counted of the groups of all partitions of a broker together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupCounts:
    """Since the broker was started."""

    members_expired: int = 0
    """Members that were dropped because they were silent, or late, for too long."""
    groups_evicted: int = 0
    """Groups whose offsets were deleted to make room for others."""
