"""How many groups there may be and what they may take, in all partitions coordinated here.

Clients are not authenticated, and each group stays in memory until it is empty and its offsets have
expired. Groups with members, groups with offsets and the memory of all state are bounded, each by
itself: offsets that were committed without a member keep no members out. Existing groups go on at a
bound. A new one takes the place of newcomers, if there are any (`newcomers`); otherwise it is
refused, its members with GROUP_MAX_SIZE_REACHED, a commit without a member with POLICY_VIOLATION.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.state_budget import StateBudget
from lakelog.coordinator.shared_count import SharedCount

TOO_MANY_GROUPS = (
    "lakelog.groups.max groups exist: raise that limit, or delete groups that are not in use"
)
NO_MEMORY = (
    "The state of groups and transactions would exceed its memory: raise "
    "lakelog.coordinator.state.max.bytes, or delete groups that are not in use."
)
_BATCH_DIVISOR = 64
"""Of a bound: so much more than needed is evicted at once, as each look for newcomers costs."""


class GroupLimits:
    """Args:
    memory: of all coordinator state of the broker.
    expire: lets all partitions look soon for groups without members and offsets.
    evict: begins to delete newcomers, but not the named group: so many groups and so many bytes
        at least, if there are.
    """

    def __init__(
        self,
        groups_max: int,
        memory: StateBudget,
        expire: Callable[[], None],
        evict: Callable[[str, int, int], None],
    ) -> None:
        self._groups_max = groups_max
        self.memory = memory
        self.groups = SharedCount()
        """Groups that have members, or had some."""
        self.offset_groups = SharedCount()
        """Groups with committed offsets, with members or without."""
        self._expire = expire
        self._evict = evict

    @property
    def is_full_of_groups(self) -> bool:
        """Whether one more group with members would be too many."""
        return self.groups.total >= self._groups_max

    @property
    def is_full_of_offsets(self) -> bool:
        """Whether one more group with offsets would be too many."""
        return self.offset_groups.total >= self._groups_max

    def make_room_for_group(self, group_id: str) -> bool:
        """Begins to evict newcomers; returns whether one more group may have members now."""
        self._make_room(group_id)
        if not self.is_full_of_groups:
            return True
        self._expire()
        return False

    def make_room_for_offsets(self, group_id: str) -> bool:
        """Begins to evict newcomers; returns whether one more group may have offsets now."""
        self._make_room(group_id)
        if not self.is_full_of_offsets:
            return True
        self._expire()
        return False

    def has_memory(self, group_id: str, more: int) -> bool:
        """Whether there is room for so many bytes; begins to make room if not."""
        if not self.memory.has(more):
            spare = self.memory.bytes_max // _BATCH_DIVISOR
            self._evict(group_id, 0, more + spare)
        return self.memory.has(more)

    def _make_room(self, group_id: str) -> None:
        self._evict(group_id, 1 + self._groups_max // _BATCH_DIVISOR, 0)
