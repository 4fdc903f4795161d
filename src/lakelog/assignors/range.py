"""The range assignor: each topic by itself is cut into runs of neighbouring partitions.

Topics with the same number of partitions are cut alike, so a member gets the same partitions of
both, which joins need. Same result as Kafka's `range` without racks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakelog.assignors.member import Assignment, Member, in_order

NAME = "range"


def assign(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Who reads what. Topics without a count (they do not exist) are left out."""
    assignment: Assignment = {member.member_id: {} for member in members}
    ordered = in_order(members)
    for topic, count in sorted(partition_counts.items()):
        subscribers = [member for member in ordered if topic in member.topics]
        if not subscribers:
            continue
        share, extra = divmod(count, len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + share + (index < extra)
            if end > start:
                assignment[member.member_id][topic] = list(range(start, end))
            start = end
    return assignment
