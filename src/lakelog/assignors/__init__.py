"""Who of a consumer group reads which partition; plain functions, shared by both sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakelog.assignors import range as range_assignor
from lakelog.assignors import roundrobin
from lakelog.assignors.member import Assignment, Member

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "Member"]

Assignor = Callable[[Sequence[Member], Mapping[str, int]], Assignment]

ASSIGNORS: dict[str, Assignor] = {
    range_assignor.NAME: range_assignor.assign,
    roundrobin.NAME: roundrobin.assign,
}
"""By the name that members send in JoinGroup."""
