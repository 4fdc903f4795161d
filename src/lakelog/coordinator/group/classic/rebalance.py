"""The turns of a classic group's rebalance: who starts it, who it waits for, what ends it.

Every method returns what has to be written; the only record a rebalance itself writes is that of a
group that has become empty. Replies to members are called as soon as they are due.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.member import Member
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.counts import GroupCounts
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.timers import TimerKey, TimerKind
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol.join_group import JoinGroupResponse
from lakelog.protocol.sync_group import SyncGroupResponse


class Rebalancer:
    def __init__(
        self,
        config: GroupConfig,
        deadlines: Deadlines[TimerKey],
        counts: GroupCounts,
    ) -> None:
        self._config = config
        self._counts = counts
        self._deadlines = deadlines

    def renew_session(self, now: Now, group: ClassicGroup, member: Member) -> None:
        self.end_session_at(group, member, now.tick_ms + member.session_timeout_ms)

    def end_session_at(self, group: ClassicGroup, member: Member, tick_ms: int) -> None:
        key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
        self._deadlines.set(key, tick_ms)

    def move_session(self, now: Now, group: ClassicGroup, old: Member, new: Member) -> None:
        self._deadlines.cancel(TimerKey(TimerKind.SESSION, group.group_id, old.member_id))
        self.renew_session(now, group, new)

    def prepare_or_complete(self, now: Now, group: ClassicGroup) -> Decision:
        """Starts a rebalance; if one has started, ends it when nobody is missing."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return self.prepare(now, group)
        if group.previous_state is GroupState.EMPTY or not group.all_joined:
            return Result()
        return self.complete_join(now, group)

    def prepare(self, now: Now, group: ClassicGroup) -> Decision:
        """From any state but PreparingRebalance. A group that was empty waits for more members."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.reset_assignments(now, group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._deadlines.cancel(TimerKey(TimerKind.SYNC, group.group_id))
        was_empty = group.state is GroupState.EMPTY
        group.transition(GroupState.PREPARING_REBALANCE, now.wall_ms)
        if not was_empty:
            if group.all_joined:
                return self.complete_join(now, group)
            self._end_join_at(group, now.tick_ms + group.rebalance_timeout_ms)
            return Result()
        delay_ms = self._config.initial_rebalance_delay_ms
        if delay_ms == 0:
            return self.complete_join(now, group)
        group.member_added = False
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        self._end_join_at(group, now.tick_ms + delay_ms)
        return Result()

    def on_join_time_up(self, now: Now, group: ClassicGroup) -> Decision:
        """The initial delay begins again if members have joined in it (KIP-134), within bounds."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return Result()
        left_ms = group.initial_delay_left_ms
        initial = group.previous_state is GroupState.EMPTY
        if not (initial and group.member_added and left_ms):
            return self.complete_join(now, group)
        delay_ms = min(self._config.initial_rebalance_delay_ms, left_ms)
        group.member_added = False
        group.initial_delay_left_ms = left_ms - delay_ms
        self._end_join_at(group, now.tick_ms + delay_ms)
        return Result()

    def complete_join(self, now: Now, group: ClassicGroup) -> Decision:
        """A new generation of those who have joined; static members may be late."""
        assert group.state is GroupState.PREPARING_REBALANCE
        self._deadlines.cancel(TimerKey(TimerKind.JOIN, group.group_id))
        for member in list(group.members.values()):
            if member.join_reply is None and member.instance_id is None:
                self._expire(group, member)
        if group.members and not _elect_leader(group):
            self._end_join_at(group, now.tick_ms + group.rebalance_timeout_ms)
            return Result()
        group.generation += 1
        group.pending_syncs = set(group.members)
        group.protocol = group.selected_protocol()
        if not group.members:
            group.transition(GroupState.EMPTY, now.wall_ms)
            return Result([group.record({})])
        group.transition(GroupState.COMPLETING_REBALANCE, now.wall_ms)
        for member in group.members.values():
            member.is_new = False
            self.renew_session(now, group, member)
            member.answer_join(group.join_response(member.member_id))
        key = TimerKey(TimerKind.SYNC, group.group_id)
        self._deadlines.set(key, now.tick_ms + group.rebalance_timeout_ms)
        return Result()

    def on_sync_time_up(self, now: Now, group: ClassicGroup) -> Decision:
        """Drops members that have joined the generation and then fallen silent."""
        late = [group.members[member_id] for member_id in group.pending_syncs]
        if not late:
            return Result()
        for member in late:
            self._expire(group, member)
        return self.prepare(now, group)

    def on_session_end(self, now: Now, group: ClassicGroup, member_id: str) -> Decision:
        member = group.members.get(member_id)
        if member is None or not member.expires:
            return Result()
        self._expire(group, member)
        return self.members_left(now, group)

    def _expire(self, group: ClassicGroup, member: Member) -> None:
        self._counts.members_expired += 1
        self.forget(group, member)

    def forget(self, group: ClassicGroup, member: Member) -> None:
        """Takes a member out, and tells it if it waits."""
        code = ErrorCode.UNKNOWN_MEMBER_ID
        self._deadlines.cancel(TimerKey(TimerKind.SESSION, group.group_id, member.member_id))
        group.remove(member.member_id)
        member.answer_join(JoinGroupResponse(error_code=code))
        member.answer_sync(SyncGroupResponse(error_code=code))

    def members_left(self, now: Now, group: ClassicGroup) -> Decision:
        """Goes on after members, or ids that were given out, are gone."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare(now, group)
        return self.pending_left(now, group)

    def pending_left(self, now: Now, group: ClassicGroup) -> Decision:
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            return self.complete_join(now, group)
        return Result()

    def synced(self, group: ClassicGroup, member: Member) -> None:
        """A member has asked for its assignment."""
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._deadlines.cancel(TimerKey(TimerKind.SYNC, group.group_id))

    def give_assignments(
        self, now: Now, group: ClassicGroup, assignments: dict[str, bytes]
    ) -> None:
        """The generation is complete: everybody who asked is told its part."""
        assert group.assignment_generation == group.generation
        group.transition(GroupState.STABLE, now.wall_ms)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.answer_sync(group.sync_response(member)):
                self.renew_session(now, group, member)

    def reset_assignments(self, now: Now, group: ClassicGroup, code: ErrorCode) -> None:
        """The generation will not be completed: everybody who asked is told to start over."""
        for member in group.members.values():
            member.assignment = b""
            if member.answer_sync(SyncGroupResponse(error_code=code)):
                self.renew_session(now, group, member)

    def _end_join_at(self, group: ClassicGroup, tick_ms: int) -> None:
        self._deadlines.set(TimerKey(TimerKind.JOIN, group.group_id), tick_ms)


def _elect_leader(group: ClassicGroup) -> bool:
    """Whether a leader has joined; another member takes over from one that has not."""
    joined = [member for member in group.members.values() if member.join_reply is not None]
    if not joined:
        return False
    if all(member.member_id != group.leader_id for member in joined):
        group.leader_id = joined[0].member_id
    return True
