"""The steps of a classic group's rebalance: begin, wait for members, complete (KIP-62, KIP-134).

Methods that may complete a rebalance return a decision. It has a record only if the group has
become empty; otherwise the leader's SyncGroup writes the generation. Members get their replies
before that.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.change_queue import TimerKey, TimerKind
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.member import Member
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.limits import GroupCounts
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol.groups import JoinGroupResponse, SyncGroupResponse


class Rebalancer:
    """Rebalances of the classic groups of one shard, and their timers."""

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
        """Begin a member's session timeout again, `session_timeout_ms` from now."""
        key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
        self._deadlines.set(key, now.tick_ms + member.session_timeout_ms)

    def move_session(self, now: Now, group: ClassicGroup, old: Member, new: Member) -> None:
        """Replace the session of a static member's former id."""
        self._deadlines.cancel(TimerKey(TimerKind.SESSION, group.group_id, old.member_id))
        self.renew_session(now, group, new)

    def add_new(self, now: Now, group: ClassicGroup, member: Member) -> Decision:
        """Begin or join a rebalance for a new member, which expires if that takes too long."""
        decision = self.prepare_or_complete(now, group)
        # A member that waits sends no heartbeats. Without this limit a client that has gone would
        # stay in a group whose rebalance takes long.
        if member.is_new:
            key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
            self._deadlines.set(key, now.tick_ms + self._config.new_member_join_timeout_ms)
        return decision

    def prepare_or_complete(self, now: Now, group: ClassicGroup) -> Decision:
        """Begin a rebalance, or complete the one in progress if all members have joined."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return self.prepare(now, group)
        # The first rebalance of a group lasts for the whole delay, although all have joined: more
        # members are expected (KIP-134).
        if group.previous_state is GroupState.EMPTY or not group.all_joined:
            return Result()
        return self._complete_early(now, group)

    def prepare(self, now: Now, group: ClassicGroup) -> Decision:
        """Begin a rebalance, from any state but PreparingRebalance.

        A group that was empty waits for more members (`group.initial.rebalance.delay.ms`).
        """
        if group.state is GroupState.EMPTY:
            return self._prepare_first(now, group)
        # Members that wait for the assignment of the old generation would wait until the sync
        # timeout: the leader's SyncGroup will be rejected.
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.reset_assignments(now, group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._deadlines.cancel(TimerKey(TimerKind.SYNC, group.group_id))
        group.transition(GroupState.PREPARING_REBALANCE, now.wall_ms)
        if group.all_joined:
            return self._complete(now, group)
        self._end_join_at(group, now.tick_ms + group.rebalance_timeout_ms)
        return Result()

    def _prepare_first(self, now: Now, group: ClassicGroup) -> Decision:
        group.transition(GroupState.PREPARING_REBALANCE, now.wall_ms)
        delay_ms = self._config.initial_rebalance_delay_ms
        if delay_ms == 0:
            return self._complete(now, group)
        # Each extension needs another new member, and together they last no longer than the
        # rebalance timeout: clients give up their JoinGroup after that.
        group.member_added = False
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        key = TimerKey(TimerKind.JOIN, group.group_id)
        self._deadlines.set(key, now.tick_ms + delay_ms)
        return Result()

    def on_join_time_up(self, now: Now, group: ClassicGroup) -> Decision:
        """Complete the join phase, or extend the initial delay if members joined in it (KIP-134).

        The delay ends at the latest after the rebalance timeout.
        """
        if group.state is not GroupState.PREPARING_REBALANCE:
            return Result()
        left_ms = group.initial_delay_left_ms
        initial = group.previous_state is GroupState.EMPTY
        # A later rebalance waits for known members only, so nothing is gained by an extension.
        if not (initial and group.member_added and left_ms):
            return self._complete(now, group)
        delay_ms = min(self._config.initial_rebalance_delay_ms, left_ms)
        group.member_added = False
        group.initial_delay_left_ms = left_ms - delay_ms
        assert group.initial_delay_left_ms >= 0, "clients have given up their JoinGroup by then"
        self._end_join_at(group, now.tick_ms + delay_ms)
        return Result()

    def _complete_early(self, now: Now, group: ClassicGroup) -> Decision:
        self._deadlines.cancel(TimerKey(TimerKind.JOIN, group.group_id))
        return self._complete(now, group)

    def _complete(self, now: Now, group: ClassicGroup) -> Decision:
        """Begin a new generation with the members that have joined, and with static members.

        The caller has cancelled the timer of the join phase, or it has fired.
        """
        assert group.state is GroupState.PREPARING_REBALANCE
        # Static members stay until their session ends, so that a restart of a process causes no
        # rebalance (KIP-345).
        for member in list(group.members.values()):
            if member.join is None and member.instance_id is None:
                self._expire(group, member)
        if group.members and not group.elect_leader():
            # All members are static and absent, so no member could assign.
            self._end_join_at(group, now.tick_ms + group.rebalance_timeout_ms)
            return Result()
        group.begin_generation(now.wall_ms)
        if not group.members:
            return Result([group.record({})])
        sync_ms = now.tick_ms + group.rebalance_timeout_ms
        for member in group.members.values():
            # From here on the member sends heartbeats, so its own session timeout replaces the
            # longer limit for new members.
            member.is_new = False
            member.answer_join(group.join_response(member.member_id))
            key = TimerKey(TimerKind.SESSION, group.group_id, member.member_id)
            self._deadlines.set(key, now.tick_ms + member.session_timeout_ms)
        # Without this limit a leader that dies between JoinGroup and SyncGroup, but whose client
        # sends heartbeats, would block its group for good.
        self._deadlines.set(TimerKey(TimerKind.SYNC, group.group_id), sync_ms)
        return Result()

    def on_sync_time_up(self, now: Now, group: ClassicGroup) -> Decision:
        """Remove members that have joined the generation but sent no SyncGroup, as Kafka does.

        A member that is alive but stuck sends heartbeats, so its session would not end.
        """
        assert group.pending_syncs <= group.members.keys(), "a member that left is waited for"
        late = [group.members[member_id] for member_id in group.pending_syncs]
        if not late:
            return Result()
        for member in late:
            self._expire(group, member)
        return self.prepare(now, group)

    def on_session_end(self, now: Now, group: ClassicGroup, member_id: str) -> Decision:
        """Remove a member whose session has timed out (KIP-62), unless it waits for a reply."""
        member = group.members.get(member_id)
        if member is None or not member.expires:
            return Result()
        self._expire(group, member)
        return self.members_left(now, group)

    def _expire(self, group: ClassicGroup, member: Member) -> None:
        self._counts.members_expired += 1
        self.forget(group, member)

    def forget(self, group: ClassicGroup, member: Member) -> None:
        """Remove a member; its parked requests get UNKNOWN_MEMBER_ID."""
        code = ErrorCode.UNKNOWN_MEMBER_ID
        # First the timer, then the member: the replies below may lead to a JoinGroup with the same
        # id.
        self._deadlines.cancel(TimerKey(TimerKind.SESSION, group.group_id, member.member_id))
        group.remove(member.member_id)
        member.answer_join(JoinGroupResponse(error_code=code))
        member.answer_sync(SyncGroupResponse(error_code=code))

    def members_left(self, now: Now, group: ClassicGroup) -> Decision:
        """Continue after members or pending members have left."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare(now, group)
        return self.pending_left(now, group)

    def pending_left(self, now: Now, group: ClassicGroup) -> Decision:
        """Complete the join phase if no member is missing after a pending member was removed."""
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            return self._complete_early(now, group)
        return Result()

    def synced(self, group: ClassicGroup, member: Member) -> None:
        """Note that a member has sent SyncGroup."""
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._deadlines.cancel(TimerKey(TimerKind.SYNC, group.group_id))

    def give_assignments(
        self, now: Now, group: ClassicGroup, assignments: dict[str, bytes]
    ) -> None:
        """Complete the generation: reply to parked SyncGroup requests with the assignment."""
        assert group.assignment_generation == group.generation
        group.transition(GroupState.STABLE, now.wall_ms)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.answer_sync(group.sync_response(member)):
                self.renew_session(now, group, member)

    def reset_assignments(self, now: Now, group: ClassicGroup, code: ErrorCode) -> None:
        """Abandon the generation: reply to parked SyncGroup requests with an error code."""
        for member in group.members.values():
            member.assignment = b""
            if member.answer_sync(SyncGroupResponse(error_code=code)):
                self.renew_session(now, group, member)

    def _end_join_at(self, group: ClassicGroup, tick_ms: int) -> None:
        self._deadlines.set(TimerKey(TimerKind.JOIN, group.group_id), tick_ms)
