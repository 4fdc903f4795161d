"""How many groups there may be and what they may take, in all partitions coordinated here.

Clients are not authenticated, and each group stays in memory until it is empty and its offsets have
expired. Groups with members, groups with offsets and the memory of all state are bounded, each by
itself: offsets that were committed without a member keep no members out. Existing groups go on at a
bound. A new one takes the place of newcomers, if there are any (`newcomers`); otherwise it is
refused, its members with GROUP_MAX_SIZE_REACHED, a commit without a member with POLICY_VIOLATION.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from lakelog.base.state_room import StateRoom

TOO_MANY_GROUPS = (
    "lakelog.groups.max groups exist: raise that limit, or delete groups that are not in use"
)
NO_MEMORY = (
    "The state of groups and transactions would exceed its memory: raise "
    "lakelog.coordinator.state.max.bytes, or delete groups that are not in use."
)
_BATCH_DIVISOR = 64
"""Of a bound: so much more than needed is evicted at once, as each look for newcomers costs."""


class Groups(Protocol):
    """Those of one partition."""

    @property
    def group_count(self) -> int:
        """Groups that have members, or had some."""
        ...

    @property
    def offsets_group_count(self) -> int:
        """Groups with committed offsets, members or not."""
        ...


class GroupLimits:
    """Args:
    memory: of all coordinator state of the broker.
    partitions: returns the partitions coordinated here.
    expire: lets all partitions look soon for groups without members and offsets.
    evict: begins to delete newcomers, but not the named group: so many groups and so many bytes
        at least, if there are.
    """

    def __init__(
        self,
        groups_max: int,
        memory: StateRoom,
        partitions: Callable[[], Iterable[Groups]],
        expire: Callable[[], None],
        evict: Callable[[str, int, int], None],
    ) -> None:
        self._groups_max = groups_max
        self.memory = memory
        self._partitions = partitions
        self._expire = expire
        self._evict = evict

    def has_room_for_members(self, group_id: str) -> bool:
        """Whether one more group may have members; begins to make room if not."""
        return self._has_room(group_id, self._is_full_of_groups)

    def has_room_for_offsets(self, group_id: str) -> bool:
        """Whether one more group may have offsets; begins to make room if not."""
        return self._has_room(group_id, self._is_full_of_offsets)

    def has_memory(self, group_id: str, more: int) -> bool:
        """Whether there is room for so many bytes; begins to make room if not."""
        if not self.memory.has(more):
            spare = self.memory.bytes_max // _BATCH_DIVISOR
            self._evict(group_id, 0, more + spare)
        return self.memory.has(more)

    def _has_room(self, group_id: str, is_full: Callable[[], bool]) -> bool:
        if not is_full():
            return True
        self._evict(group_id, 1 + self._groups_max // _BATCH_DIVISOR, 0)
        if not is_full():
            return True
        self._expire()
        return False

    def _is_full_of_groups(self) -> bool:
        return sum(each.group_count for each in self._partitions()) >= self._groups_max

    def _is_full_of_offsets(self) -> bool:
        return sum(each.offsets_group_count for each in self._partitions()) >= self._groups_max
