"""Limits of the number and the memory of groups, for all partitions of this broker together.

Clients are not authenticated, and each group stays in memory until it is empty and its offsets have
expired. Three limits are independent of each other: groups with members, groups with offsets, and
the memory of all state. So offsets that were committed without a member do not keep members out.
Existing groups continue at a limit. A new group makes the coordinator evict newcomers, if any
(`newcomers`). Otherwise its members get GROUP_MAX_SIZE_REACHED, and a commit without a member gets
POLICY_VIOLATION.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Account, Share
from lakelog.coordinator.shared_count import SharedCount

TOO_MANY_GROUPS = (
    "the number of groups has reached lakelog.groups.max: raise that limit, or delete unused groups"
)
NO_MEMORY = (
    "The state of groups and transactions would exceed its memory: raise "
    "lakelog.coordinator.state.max.bytes, or delete groups that are not in use."
)
_BATCH_DIVISOR = 64
"""Each eviction frees 1/64 of the limit in addition: searching newcomers is expensive."""


class GroupLimits:
    """The limits of one broker, and the totals that they bound.

    Args:
        groups_max: `lakelog.groups.max`.
        memory: the memory share of groups and transactional ids.
        expire: has all partitions check soon for expired offsets and empty groups.
        evict: begins to delete newcomers, except the named group: at least this many groups and
            this many bytes, if there are as many.
    """

    def __init__(
        self,
        groups_max: int,
        memory: Share,
        expire: Callable[[], None],
        evict: Callable[[str, int, int], None],
    ) -> None:
        self._groups_max = groups_max
        self.memory = memory
        self.groups = SharedCount()
        """Groups that have or had members."""
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
        """Begin to evict newcomers; return whether one more group may have members now."""
        self._make_room(group_id)
        if not self.is_full_of_groups:
            return True
        self._expire()
        return False

    def make_room_for_offsets(self, group_id: str) -> bool:
        """Begin to evict newcomers; return whether one more group may have offsets now."""
        self._make_room(group_id)
        if not self.is_full_of_offsets:
            return True
        self._expire()
        return False

    def has_memory(self, group_id: str, more: int) -> bool:
        """Return whether `more` bytes are free; begin to evict newcomers if not.

        The memory of groups that are being evicted counts as free.
        """
        if not self.memory.has(more):
            spare = self.memory.bytes_max // _BATCH_DIVISOR
            self._evict(group_id, 0, more + spare)
        return self.memory.has(more)

    def _make_room(self, group_id: str) -> None:
        self._evict(group_id, 1 + self._groups_max // _BATCH_DIVISOR, 0)


class ShardLimits:
    """The limits of one broker, applied to the groups of one shard.

    Args:
        account: the shard's memory.
        has_offsets: returns whether a group has offsets, also of open transactions. Such a group
            is exempt from the limits of new groups.
    """

    def __init__(
        self, limits: GroupLimits, account: Account[str], has_offsets: Callable[[str], bool]
    ) -> None:
        self._limits = limits
        self._account = account
        self._has_offsets = has_offsets

    def has_room_for_group(self, group_id: str) -> bool:
        """Return whether the group may have its first member.

        At the limit, the coordinator begins to evict newcomers, and checks soon for expired offsets
        and empty groups, in all partitions.
        """
        limits = self._limits
        return (
            not limits.is_full_of_groups
            or self._has_offsets(group_id)
            or limits.make_room_for_group(group_id)
        )

    def has_memory(self, group_id: str, more: int) -> bool:
        """Return whether a group may take `more` bytes; begin to evict newcomers if not."""
        if self._account.may_grow(group_id, more):
            return True
        # A group above its own part gains nothing by the eviction of others.
        within_share = self._account.of(group_id) + more <= self._limits.memory.owner_max
        return within_share and self._limits.has_memory(group_id, more)

    def check_offsets(self, group_id: str, more: int, *, exists: bool) -> None:
        """Check that a group may have offsets that take `more` bytes.

        Args:
            exists: whether the group has or had members.

        Raises `KafkaError(POLICY_VIOLATION)` for a new group if there are too many groups, and
        `KafkaError(INVALID_COMMIT_OFFSET_SIZE)` if there is too little memory.
        """
        # The cheap conditions first: the last one begins an eviction.
        if (
            self._limits.is_full_of_offsets
            and not exists
            and not self._has_offsets(group_id)
            and not self._limits.make_room_for_offsets(group_id)
        ):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY_GROUPS)
        if not self.has_memory(group_id, more):
            raise KafkaError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, NO_MEMORY)
