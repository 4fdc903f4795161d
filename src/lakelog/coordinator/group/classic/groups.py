"""The classic groups of a shard: live groups, and the stored generation of each.

`stored` is durable, and only `replay` changes it. Live groups are soft state, built from `stored`
when the shard is loaded. The shard's account counts their memory, and `count` their number.
"""

from __future__ import annotations

from typing import Any

from lakelog.base.memory_budget import Account
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.memory import stored_bytes
from lakelog.coordinator.group.records.classic import GroupMetadataValue
from lakelog.coordinator.shared_count import ShardCount


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
