"""Deletes expired offsets and empty groups at intervals (`offsets.retention.check.interval.ms`).

`expiry` decides which offsets have expired. A group without members is deleted with its last
offset.
"""

from __future__ import annotations

from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.offsets.expiry import expired_offsets
from lakelog.coordinator.group.offsets.table import tombstones
from lakelog.coordinator.group.records.codec import Decision, Record
from lakelog.coordinator.group.removal.deletion import group_tombstones
from lakelog.coordinator.group.state import AnyGroup, ShardState
from lakelog.coordinator.group.timers import TimerKey, TimerKind
from lakelog.coordinator.shard import Now, Result

_PAUSE_MS = 10_000
"""Shortest time between two checks, when groups wait for room."""


class Cleanup:
    """The periodic check of one shard."""

    def __init__(self, state: ShardState) -> None:
        self._state = state

    def schedule(self, now: Now) -> None:
        """Set the timer of the next check."""
        interval_ms = self._state.config.offsets_retention_check_ms
        self._state.next_expiry_ms = now.tick_ms + min(interval_ms, _PAUSE_MS)
        self._state.expires_soon = False
        self._state.deadlines.set(TimerKey(TimerKind.EXPIRY), now.tick_ms + interval_ms)

    def expire(self, now: Now) -> list[Decision]:
        """Return the decisions that delete expired offsets and empty groups."""
        self.schedule(now)
        state = self._state
        group_ids = (
            state.classic.stored.keys() | state.offsets.group_ids | state.consumers.by_id.keys()
        )
        decisions = [self._expire_in_turn(now, group_id) for group_id in sorted(group_ids)]
        return [decision for decision in decisions if decision.records]

    def _expire_in_turn(self, now: Now, group_id: str) -> Decision:
        def decide(now: Now) -> Decision:
            return self._expire_group(now, group_id)

        return self._state.changes.enter(now, group_id, decide, lambda _: None, exclusive=True)

    def _expire_group(self, now: Now, group_id: str) -> Decision:
        state = self._state
        # A marker may bring new offsets, so a group with an open transaction is not idle.
        if group_id in state.offsets.pending:
            return Result()
        group = state.any_group(group_id)
        offsets = state.offsets.of_group(group_id)
        retention_ms = state.config.offsets_retention_ms
        expired = expired_offsets(group_id, group, offsets, now.wall_ms, retention_ms)
        records: list[Record] = [*tombstones(expired)]
        left = sum(map(len, offsets.values())) - len(expired)
        if left or not _is_idle(group):
            return state.changes.change(group_id, Result(records))
        if group_id in state.classic.stored or group_id in state.consumers.by_id:
            records += group_tombstones(group, group_id)

        def committed(_: Now) -> None:
            if isinstance(group, ClassicGroup):
                state.classic.pop(group_id, None)

        return state.changes.change(group_id, Result(records, committed))


def _is_idle(group: AnyGroup | None) -> bool:
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group is None or (group.state is GroupState.EMPTY and not group.pending_joins)
