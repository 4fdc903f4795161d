"""Who of a consumer group reads which partition; plain functions, shared by both sides.

In the classic protocol the leader of a group assigns, with one of `ASSIGNORS`; in the consumer
protocol the coordinator does (KIP-848), with one of `SERVER_ASSIGNORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakelog.assignors import range as range_assignor
from lakelog.assignors import roundrobin, uniform
from lakelog.assignors.member import Assignment, Member

__all__ = ["ASSIGNORS", "SERVER_ASSIGNORS", "Assignment", "Assignor", "Member", "ServerAssignor"]

Assignor = Callable[[Sequence[Member], Mapping[str, int]], Assignment]
ServerAssignor = Callable[[Sequence[Member], Mapping[str, int], Assignment], Assignment]
"""The last argument is the assignment until now."""

ASSIGNORS: dict[str, Assignor] = {
    range_assignor.NAME: range_assignor.assign,
    roundrobin.NAME: roundrobin.assign,
}
"""By the name that members send in JoinGroup."""


def _range(
    members: Sequence[Member], partition_counts: Mapping[str, int], current: Assignment
) -> Assignment:
    return range_assignor.assign(members, partition_counts)


SERVER_ASSIGNORS: dict[str, ServerAssignor] = {
    uniform.NAME: uniform.assign,
    range_assignor.NAME: _range,
}
"""By the name that members send in ConsumerGroupHeartbeat."""
