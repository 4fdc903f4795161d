"""The limits of the group coordinator: number of groups, memory, and subscriptions.

Clients are not authenticated, and each group stays in memory until it is empty and its offsets have
expired. Three limits, for all partitions of this broker together, are independent of each other:
groups with members, groups with offsets, and the memory of all state. So offsets that were
committed without a member do not keep members out. Existing groups continue at a limit. A new group
makes the coordinator evict probationary groups, if any (`offsets.py`). Otherwise its members
get GROUP_MAX_SIZE_REACHED, and a commit without a member gets POLICY_VIOLATION.

Memory is estimated in bytes, for the share `state` of the budget; `Member.memory` estimates a
member. The constants were measured with `tracemalloc`; a test compares the sums with a measurement.

A member's subscription includes the metadata of its assignors, which in the classic protocol
contains the partitions that it owns. The coordinator keeps subscriptions as long as their members,
and passes them to the group's leader or to the assignor. Single requests are bounded, but ten
thousand members may each send a large one. A member whose subscription does not grow is accepted
even if the limit has been lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Account, Share, text_bytes
from lakelog.coordinator.group.records import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from lakelog.coordinator.shard import SharedCount


@dataclass(slots=True)
class GroupCounts:
    """Counters of removed members and groups since the start of the broker."""

    members_expired: int = 0
    """Members that were removed because they timed out."""
    groups_evicted: int = 0
    """Groups whose offsets were deleted to free capacity for other groups."""


ENTRY_BYTES = 32
"""Overhead of each name and each assignor: a hundred thousand empty ones take memory, too."""


def topic_names_size(names: Collection[str]) -> int:
    """Return the size of the names of topics that a member subscribes to."""
    return sum(map(len, names)) + ENTRY_BYTES * len(names)


def check_subscriptions(total: int, before: int, after: int, most: int) -> None:
    """Raise `KafkaError(GROUP_MAX_SIZE_REACHED)` if a subscription grows beyond the limit.

    Args:
        total: bytes of all members of the group now.
        before: bytes of this member, included in `total`; 0 if it is new.
        after: bytes of this member's new subscription.
        most: `lakelog.group.subscriptions.max.bytes`.
    """
    total_after = total - before + after
    if after > before and total_after > most:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The subscriptions of the group's members would take {total_after} bytes, more than "
            f"lakelog.group.subscriptions.max.bytes ({most}): subscribe to fewer topics or by a "
            "regular expression, or raise that limit.",
        )


GROUP_BYTES = 1536
"""A live group with its timers."""
_STORED_BYTES = 512
_STORED_MEMBER_BYTES = 384
OFFSETS_BYTES = 768
"""A group that has offsets."""
_OFFSET_BYTES = 256
_PENDING_OFFSET_BYTES = 512
ID_GIVEN_OUT_BYTES = 512


def stored_bytes(value: GroupMetadataValue | None) -> int:
    """Return the bytes of a stored generation, without subscriptions (see `Member.memory`)."""
    if value is None:
        return 0
    return _STORED_BYTES + sum(
        _STORED_MEMBER_BYTES
        + text_bytes(member.member_id)
        + text_bytes(member.group_instance_id)
        + text_bytes(member.client_id)
        + len(member.assignment)
        for member in value.members
    )


def offset_bytes(key: OffsetCommitKey, value: OffsetCommitValue | None) -> int:
    """Return the bytes of a committed offset, with its share of the topic's entry."""
    if value is None:
        return 0
    return _OFFSET_BYTES + text_bytes(value.metadata) + len(key.topic)


def pending_offset_bytes(key: OffsetCommitKey, value: OffsetCommitValue | None) -> int:
    """Return the bytes of an offset of an open transaction, with its transaction's entry."""
    return _PENDING_OFFSET_BYTES + offset_bytes(key, value) + len(key.group)


TOO_MANY_GROUPS = (
    "the number of groups has reached lakelog.groups.max: raise that limit, or delete unused groups"
)
NO_MEMORY = (
    "The state of groups and transactions would exceed its memory: raise "
    "lakelog.coordinator.state.max.bytes, or delete groups that are not in use."
)
_NO_MEMORY_TO_JOIN = (
    "the memory of the coordinators is exhausted; delete unused groups or raise "
    "lakelog.coordinator.state.max.bytes"
)
_BATCH_DIVISOR = 64
"""Each eviction frees 1/64 of the limit in addition: searching probationary groups is expensive."""


class GroupLimits:
    """The limits of one broker, and the totals that they bound.

    Args: groups_max: `lakelog.groups.max`. memory: the memory share of groups and transactional
        ids. expire: has all partitions check soon for expired offsets and empty groups. evict:
        begins to delete probationary groups, except the named group: at least this many groups and
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

    def is_full(self, groups: SharedCount) -> bool:
        """Return whether one more would be too many: `groups` or `offset_groups`."""
        return groups.total >= self._groups_max

    def free_capacity(self, groups: SharedCount, group_id: str) -> bool:
        """Begin to evict probationary groups; return whether one more group may count now."""
        self._evict(group_id, 1 + self._groups_max // _BATCH_DIVISOR, 0)
        if not self.is_full(groups):
            return True
        self._expire()
        return False

    def has_memory(self, group_id: str, more: int) -> bool:
        """Return whether `more` bytes are free; begin to evict probationary groups if not.

        The memory of groups that are being evicted counts as free.
        """
        if not self.memory.has(more):
            spare = self.memory.bytes_max // _BATCH_DIVISOR
            self._evict(group_id, 0, more + spare)
        return self.memory.has(more)


class Growth(NamedTuple):
    """The growth of a group by a member that joins."""

    group_id: str
    is_new: bool
    """Whether the group has not had a member yet."""
    subscriptions: int
    """Bytes of all members of the group now."""
    before: int
    """Bytes of this member, included in `subscriptions`; 0 if it is new."""
    after: int
    """Bytes of this member's new subscription."""
    memory: int
    """Additional memory, in bytes."""


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

    def lacks_capacity(self, growth: Growth, subscriptions_max: int) -> str:
        """Return why a group may not grow; empty if it may."""
        try:
            check_subscriptions(
                growth.subscriptions, growth.before, growth.after, subscriptions_max
            )
        except KafkaError as error:
            return error.message
        if growth.is_new and not self.has_capacity_for_group(growth.group_id):
            return TOO_MANY_GROUPS
        return "" if self.has_memory(growth.group_id, growth.memory) else _NO_MEMORY_TO_JOIN

    def has_capacity_for_group(self, group_id: str) -> bool:
        """Return whether the group may have its first member.

        At the limit, the coordinator begins to evict probationary groups, and checks soon for
        expired offsets and empty groups, in all partitions.
        """
        limits = self._limits
        return (
            not limits.is_full(limits.groups)
            or self._has_offsets(group_id)
            or limits.free_capacity(limits.groups, group_id)
        )

    def has_memory(self, group_id: str, more: int) -> bool:
        """Return whether a group may take `more` bytes; begin to evict probationary groups if
        not."""
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
        limits = self._limits
        if (
            limits.is_full(limits.offset_groups)
            and not exists
            and not self._has_offsets(group_id)
            and not limits.free_capacity(limits.offset_groups, group_id)
        ):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY_GROUPS)
        if not self.has_memory(group_id, more):
            raise KafkaError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, NO_MEMORY)
