"""The round robin assignor: all partitions of all topics are dealt out one by one.

More even than `range` over several topics, and less stable. Same result as Kafka's `roundrobin`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakelog.assignors.member import Assignment, Member, in_order

NAME = "roundrobin"


def assign(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Who reads what. Topics without a count (they do not exist) are left out."""
    assignment: Assignment = {member.member_id: {} for member in members}
    ordered = in_order(members)
    subscribed = frozenset[str]().union(*(member.topics for member in members))
    turn = 0
    for topic in sorted(subscribed & partition_counts.keys()):
        for partition in range(partition_counts[topic]):
            while topic not in ordered[turn % len(ordered)].topics:
                turn += 1
            member = ordered[turn % len(ordered)]
            assignment[member.member_id].setdefault(topic, []).append(partition)
            turn += 1
    return assignment
