"""The classic groups of a shard: live groups, their stored generations, and pending members.

`stored` is durable, and only `replay` changes it. Live groups are soft state, built from `stored`
when the shard is loaded. The shard's account counts their memory, and `count` their number.

Pending members are assigned member ids with which no client has joined yet (KIP-394). A client can
request any number of ids, so there is a limit for all groups of a shard together. At the limit the
oldest id is dropped; its client, if it still exists, requests another. A group that has only
pending members does not count against the limit of groups until its first member joins.
"""

from __future__ import annotations

from typing import Any

from lakelog.base.memory_budget import Account
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.change_queue import TimerKey, TimerKind
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.limits import ID_GIVEN_OUT_BYTES, stored_bytes
from lakelog.coordinator.group.records import GroupMetadataValue
from lakelog.coordinator.shard import ShardCount


class ClassicGroups(dict[str, ClassicGroup]):
    """Live groups by id; changed by assignment, `del`, `pop` and `clear` only."""

    def __init__(self, account: Account[str], count: ShardCount) -> None:
        super().__init__()
        self._account = account
        self._count = count
        self.stored: dict[str, GroupMetadataValue] = {}
        """The last written generation of each group."""

    def replay(self, group_id: str, value: GroupMetadataValue | None) -> None:
        """Apply a committed generation, or a tombstone."""
        # The live group is left alone: it is newer than its last record.
        old = self.stored.get(group_id)
        self._account.add(group_id, stored_bytes(value) - stored_bytes(old))
        if value is not None:
            self.stored[group_id] = value
        else:
            self.stored.pop(group_id, None)

    def is_unused(self, group: ClassicGroup) -> bool:
        """Return whether no record of the group exists; it may have pending member ids."""
        return (
            group.generation == 0
            and group.state is GroupState.EMPTY
            and not group.members
            and group.group_id not in self.stored
        )

    def forget_if_unused(self, group: ClassicGroup) -> None:
        """Remove a group that has neither records nor pending member ids."""
        if self.is_unused(group) and not group.pending_joins:
            self.pop(group.group_id, None)

    def __setitem__(self, group_id: str, group: ClassicGroup) -> None:
        self._leave(self.get(group_id))
        super().__setitem__(group_id, group)
        group.account = self._account
        self._count.add(1)
        self._account.add(group_id, group.memory)

    def __delitem__(self, group_id: str) -> None:
        self._leave(self[group_id])
        super().__delitem__(group_id)

    def pop(self, group_id: str, *default: Any) -> Any:
        self._leave(self.get(group_id))
        return super().pop(group_id, *default)

    def clear(self) -> None:
        for group in self.values():
            self._leave(group)
        super().clear()

    def _leave(self, group: ClassicGroup | None) -> None:
        if group is not None:
            group.account = None
            self._count.add(-1)
            self._account.add(group.group_id, -group.memory)


PENDING_MAX = 2000
"""Maximum number of pending ids of one shard."""
PENDING_BYTES_MAX = 1024 * 1024
"""Maximum size of pending ids and their group ids together: each may have 32 KiB."""


class PendingMembers:
    """The pending members of one shard.

    Args:
        account: the shard's memory.
        group_count: count of the shard's groups, without groups that only have pending members.
    """

    def __init__(
        self, deadlines: Deadlines[TimerKey], account: Account[str], group_count: ShardCount
    ) -> None:
        self._deadlines = deadlines
        self._account = account
        self._group_count = group_count
        self._groups: dict[str, ClassicGroup] = {}
        self.unjoined_count = 0
        """Number of groups that have only pending members."""
        self._size = 0

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, group: ClassicGroup, member_id: str, deadline_ms: int) -> ClassicGroup | None:
        """Add a pending id until `deadline_ms` on the monotonic clock (KIP-394).

        Return the group that lost the oldest id to free capacity, if any. If there is no capacity
        even then, the new id is dropped at once.
        """
        assert member_id not in self._groups, "a member id is assigned once"
        loser, size = None, _size(group, member_id)
        if self._groups and not self._has_capacity(size):
            oldest = next(iter(self._groups))
            loser = self._groups[oldest]
            self.remove(loser, oldest)
        if not self._has_capacity(size):
            return loser
        self._size += size
        self._account.add(group.group_id, ID_GIVEN_OUT_BYTES + size)
        self._groups[member_id] = group
        assert len(self._groups) <= PENDING_MAX, "the oldest made room"
        assert self._size <= PENDING_BYTES_MAX, "the oldest made room"
        group.pending_joins.add(member_id)
        if group.generation == 0 and not group.members and not group.is_unjoined:
            group.is_unjoined = True
            self.unjoined_count += 1
            self._group_count.add(-1)
        key = TimerKey(TimerKind.PENDING, group.group_id, member_id)
        self._deadlines.set(key, deadline_ms)
        return loser

    def _has_capacity(self, size: int) -> bool:
        return len(self._groups) < PENDING_MAX and self._size + size <= PENDING_BYTES_MAX

    def remove(self, group: ClassicGroup, member_id: str) -> bool:
        """Remove a pending id of this group; return whether there was one."""
        # Clients choose the names in requests: the id may be pending in another group.
        if self._groups.get(member_id) is not group:
            return False
        del self._groups[member_id]
        size = _size(group, member_id)
        self._size -= size
        assert self._size >= 0
        group.pending_joins.discard(member_id)
        if not group.pending_joins:
            self._count(group)
        self._account.add(group.group_id, -ID_GIVEN_OUT_BYTES - size)
        self._deadlines.cancel(TimerKey(TimerKind.PENDING, group.group_id, member_id))
        return True

    def joined(self, group: ClassicGroup, member_id: str) -> None:
        """Note that the group has got a member with this id, which may have been pending."""
        self.remove(group, member_id)
        if group.is_unjoined:
            self._count(group)

    def _count(self, group: ClassicGroup) -> None:
        """Count a group that no longer has only pending members."""
        if group.is_unjoined:
            group.is_unjoined = False
            self.unjoined_count -= 1
            assert self.unjoined_count >= 0, "a group is counted once"
            self._group_count.add(1)

    def remove_all(self, group: ClassicGroup) -> None:
        """Remove all pending members of a group."""
        for member_id in list(group.pending_joins):
            self.remove(group, member_id)
        assert not group.pending_joins, "a pending member of the group would keep its memory"


def _size(group: ClassicGroup, member_id: str) -> int:
    return len(group.group_id) + len(member_id)
