"""Assignment of partitions to the members of a group: plain functions for client and coordinator.

In the classic protocol the leader of a group computes the assignment with one of `ASSIGNORS`; in
the consumer protocol (KIP-848) the coordinator does, with one of `SERVER_ASSIGNORS`. Read
`member.py` first, which declares arguments and result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakelog.assignors import range as range_assignor
from lakelog.assignors import roundrobin, uniform
from lakelog.assignors.member import Assignment, Member

__all__ = ["ASSIGNORS", "SERVER_ASSIGNORS", "Assignment", "Assignor", "Member", "ServerAssignor"]

Assignor = Callable[[Sequence[Member], Mapping[str, int]], Assignment]
ServerAssignor = Callable[[Sequence[Member], Mapping[str, int], Assignment], Assignment]
"""The last argument is the current assignment."""

ASSIGNORS: dict[str, Assignor] = {
    range_assignor.NAME: range_assignor.assign,
    roundrobin.NAME: roundrobin.assign,
}
"""The assignors of the classic protocol, by their names in JoinGroup."""


def _range(
    members: Sequence[Member], partition_counts: Mapping[str, int], current: Assignment
) -> Assignment:
    return range_assignor.assign(members, partition_counts)


SERVER_ASSIGNORS: dict[str, ServerAssignor] = {
    uniform.NAME: uniform.assign,
    range_assignor.NAME: _range,
}
"""The assignors of the consumer protocol, by their names in ConsumerGroupHeartbeat."""
