"""The round robin assignor: members take turns for the partitions of all topics.

With several topics it is more even than `range`, and less stable. The result equals that of Kafka's
`roundrobin`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakelog.assignors.member import Assignment, Member, in_order

NAME = "roundrobin"


def assign(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Return the assignment of Kafka's `RoundRobinAssignor`.

    Topics without a count do not exist and are ignored.
    """
    assignment: Assignment = {member.member_id: {} for member in members}
    ordered = in_order(members)
    subscribed = frozenset[str]().union(*(member.topics for member in members))
    next_index = 0
    for topic in sorted(subscribed & partition_counts.keys()):
        for partition in range(partition_counts[topic]):
            # This ends: each topic here has a subscriber.
            while topic not in ordered[next_index % len(ordered)].topics:
                next_index += 1
            member = ordered[next_index % len(ordered)]
            assignment[member.member_id].setdefault(topic, []).append(partition)
            next_index += 1
    return assignment
