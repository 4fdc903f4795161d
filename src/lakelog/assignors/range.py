"""The range assignor: each topic is divided into ranges of consecutive partitions.

Topics with the same number of partitions are divided in the same way, so that a member gets the
same partitions of each, as joins require. The result equals that of Kafka's `range` without racks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakelog.assignors.member import Assignment, Member, in_order

NAME = "range"


def assign(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Return the assignment of Kafka's `RangeAssignor`, without racks.

    Topics without a count do not exist and are ignored.
    """
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
