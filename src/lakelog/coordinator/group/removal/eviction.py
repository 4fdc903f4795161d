"""Evicts newcomers: deletes their offsets to make room for new groups.

`newcomers` defines which groups may be evicted. Until their tombstones are committed they take
memory, but no longer count.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.counts import GroupCounts
from lakelog.coordinator.group.records.codec import Decision
from lakelog.coordinator.group.removal.deletion import all_offsets, group_tombstones
from lakelog.coordinator.group.state import ShardState
from lakelog.coordinator.shard import Now, Result


class Evictions:
    """Decisions that evict groups of one shard."""

    def __init__(self, state: ShardState, counts: GroupCounts) -> None:
        self._state = state
        self._counts = counts

    def evict(self, now: Now, group_id: str) -> Decision:
        """Delete a group, unless it is in use when the decision is made.

        The decision may wait for changes of the group (`ChangeQueue.enter`).
        """

        def decide(_: Now) -> Decision:
            return self._evict(group_id)

        return self._state.changes.enter(now, group_id, decide, lambda _: None, exclusive=True)

    def _evict(self, group_id: str) -> Decision:
        state = self._state
        # While the decision waited, a member may have joined or another commit may have come.
        if group_id not in state.offsets.newcomers or not state.is_deserted(group_id):
            return Result()
        group = state.any_group(group_id)
        records = all_offsets(state.offsets, group_id)
        if group_id in state.classic.stored or group_id in state.consumers.by_id:
            records += group_tombstones(group, group_id)
        state.begin_eviction(group_id)

        def committed(_: Now) -> None:
            if isinstance(group, ClassicGroup):
                state.classic.pop(group_id, None)
            self._counts.groups_evicted += 1
            state.end_eviction(group_id)

        def failed(_: Now, code: ErrorCode) -> None:
            state.end_eviction(group_id)

        return state.changes.change(group_id, Result(records, committed, failed))
