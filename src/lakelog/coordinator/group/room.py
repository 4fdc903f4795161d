"""How many groups there may be, in all partitions together that this broker coordinates.

Anyone can make groups, and each stays in memory until it is empty and its offsets have expired.
Beyond the bound those that there are go on, and new ones are refused: their members are told that
the group is full, and a commit of somebody without a group that it violates a policy. A member of a
group may always commit, and one with offsets may always have members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

TOO_MANY_GROUPS = (
    "there are as many groups as lakelog.groups.max allows: raise it, or delete some that nobody "
    "uses any more"
)


class Groups(Protocol):
    """Those of one partition."""

    @property
    def group_count(self) -> int: ...

    @property
    def offsets_group_count(self) -> int:
        """Groups with committed offsets, members or not."""
        ...


class GroupRoom:
    """`partitions` gives those that are coordinated here; `make_room` has all of them look soon for
    groups that may go."""

    def __init__(
        self,
        groups_max: int,
        partitions: Callable[[], Iterable[Groups]],
        make_room: Callable[[], None],
    ) -> None:
        self._groups_max = groups_max
        self._partitions = partitions
        self.make_room = make_room

    @property
    def is_full(self) -> bool:
        found = list(self._partitions())
        groups = sum(each.group_count for each in found)
        with_offsets = sum(each.offsets_group_count for each in found)
        return max(groups, with_offsets) >= self._groups_max
