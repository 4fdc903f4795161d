"""The live classic groups of a shard, with their memory and their number accounted for."""

from __future__ import annotations

from typing import Any

from lakelog.base.memory_budget import Account
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.shared_count import ShardCount


class ClassicGroups(dict[str, ClassicGroup]):
    """Groups by id; changed by assignment, `del`, `pop` and `clear` only."""

    def __init__(self, account: Account[str], count: ShardCount) -> None:
        super().__init__()
        self._account = account
        self._count = count

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
