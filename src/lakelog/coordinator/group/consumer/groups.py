"""The consumer groups of a shard: their changes and timers.

Every change passes `finish`, or `fence`, which may downgrade the group. The records of a change are
written as one batch; replies and timers follow when they are committed (`Effect`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Account
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.change_queue import ChangeQueue, TimerKey, TimerKind
from lakelog.coordinator.group.classic.group import ClassicGroup, GroupState
from lakelog.coordinator.group.classic.groups import ClassicGroups, PendingMembers
from lakelog.coordinator.group.classic.rebalance import Rebalancer
from lakelog.coordinator.group.config import ConsumerConfig, GroupConfig, Overrides, Topics
from lakelog.coordinator.group.consumer.group import ConsumerGroup, Draft
from lakelog.coordinator.group.consumer.member import ConsumerMember, MemberState
from lakelog.coordinator.group.consumer.migration import (
    CONSUMER,
    cannot_upgrade,
    classic_record,
    classic_tombstone,
    downgraded,
    upgraded,
)
from lakelog.coordinator.group.consumer.rebalance import ConsumerRebalancer
from lakelog.coordinator.group.limits import (
    NO_MEMORY,
    TOO_MANY_GROUPS,
    GroupCounts,
    ShardLimits,
    check_subscriptions,
)
from lakelog.coordinator.group.records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupRecord,
    Decision,
)
from lakelog.coordinator.shard import LATER, Effect, Now, Result, ShardCount, Then
from lakelog.protocol.groups import JoinGroupResponse, SyncGroupResponse

_RETRY_MS = 500
_MEMBER_TIMERS = (TimerKind.SESSION, TimerKind.REVOKE, TimerKind.REJOIN, TimerKind.RESYNC)


class ConsumerGroups:
    """The consumer groups of one shard.

    Args:
        classic: the shard's live classic groups; an upgraded group is removed from them.
    """

    def __init__(
        self,
        config: GroupConfig,
        overrides: Overrides,
        deadlines: Deadlines[TimerKey],
        topics: Topics,
        changes: ChangeQueue,
        classic: ClassicGroups,
        classic_rebalancer: Rebalancer,
        pending: PendingMembers,
        capacity: ShardLimits,
        account: Account[str],
        group_count: ShardCount,
        counts: GroupCounts,
    ) -> None:
        self.config: ConsumerConfig = config.consumer
        self._classic_members_max = config.members_max
        self._subscriptions_bytes_max = config.subscriptions_bytes_max
        self._overrides = overrides
        self._deadlines = deadlines
        self._topics = topics
        self._changes = changes
        self._classic = classic
        self._classic_rebalancer = classic_rebalancer
        self._pending = pending
        self._capacity = capacity
        self._account = account
        self._group_count = group_count
        self._counts = counts
        self.by_id: dict[str, ConsumerGroup] = {}
        self.rebalancer = ConsumerRebalancer(config.consumer, topics, self._assignment_interval_ms)

    # Durable state

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply a committed record."""
        group_id = record.key.group_id
        group = self.by_id.get(group_id)
        if group is None:
            if record.value is None:  # compaction has removed the records that it deletes
                return
            group = self.by_id[group_id] = ConsumerGroup(group_id)
            self._group_count.add(1)
            self._account.add(group_id, group.memory)
        before = group.memory
        group.replay(record)
        self._account.add(group_id, group.memory - before)
        if record.value is None and isinstance(record.key, ConsumerGroupMetadataKey):
            del self.by_id[group_id]
            self._group_count.add(-1)
            self._account.add(group_id, -group.memory)

    def loaded(self, now: Now) -> None:
        """Begin to serve: start the timers of all members."""
        self.rebalancer.regexes.new_topics_version = self._topics.version()
        for group in self.by_id.values():
            for member in group.members.values():
                self.arm(now, group.group_id, member)

    def topics_changed(self, names: Collection[str], *, are_new: bool) -> None:
        """Have groups that subscribe to these topics compare them at the next heartbeat."""
        if are_new:
            self.rebalancer.regexes.new_topics_version = self._topics.version()
        for group in self.by_id.values():
            if not group.refresh_due and not group.subscribed_topics().isdisjoint(names):
                group.refresh_due = True

    # Settings

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of a group in milliseconds."""
        own = self._overrides(group_id)
        return own.get("consumer.session.timeout.ms", self.config.session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval of a group in milliseconds."""
        own = self._overrides(group_id)
        return own.get("consumer.heartbeat.interval.ms", self.config.heartbeat_interval_ms)

    def _assignment_interval_ms(self, group_id: str) -> int:
        own = self._overrides(group_id)
        return own.get("consumer.assignment.interval.ms", self.config.assignment_interval_ms)

    # Changes

    def get(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group.

        Raises `KafkaError(GROUP_ID_NOT_FOUND)` for a classic group, too, as Kafka does.
        """
        group = self.by_id.get(group_id)
        if group is None:
            what = "is not a consumer group" if group_id in self._classic else "not found"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return group

    def open(self, group_id: str, *, creates: bool) -> Draft:
        """Return a draft of the group; if `creates`, create it or upgrade a classic group.

        Raises `KafkaError(GROUP_ID_NOT_FOUND)` if the group does not exist or cannot be upgraded,
        and `KafkaError(GROUP_MAX_SIZE_REACHED)` if there are too many groups.
        """
        group = self.by_id.get(group_id)
        if group is not None or not creates:
            return Draft(self.get(group_id))
        classic = self._classic.get(group_id)
        is_new = classic is None or classic.is_unjoined
        if is_new and not self._capacity.has_capacity_for_group(group_id):
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, TOO_MANY_GROUPS)
        if classic is None:
            return Draft(ConsumerGroup(group_id))
        if classic.state is GroupState.EMPTY:
            # No member has an assignment to keep, so this is no migration and needs no policy.
            tombstone = classic_tombstone(group_id)
            return Draft(ConsumerGroup(group_id), retires=classic, records=[tombstone])
        self._check_upgrade(classic)
        return upgraded(classic, self._topics)

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        if not self.config.migration.upgrades:
            reason = "online upgrade is disabled."
        elif classic.protocol_type != CONSUMER:
            reason = "the group does not use the consumer embedded protocol."
        elif len(classic.members) > self.config.members_max:
            reason = "the group size exceeds the consumer group maximum size."
        else:
            return
        raise cannot_upgrade(classic.group_id, reason)

    def check_capacity(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """Raise `KafkaError(GROUP_MAX_SIZE_REACHED)` if a new member exceeds the group's limit."""
        is_member = member_id in group.members or group.static_member(instance_id) is not None
        if not is_member and len(group.members) >= self.config.members_max:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of "
                f"{self.config.members_max} members.",
            )

    def check_subscription(
        self, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember
    ) -> None:
        """Raise `KafkaError(GROUP_MAX_SIZE_REACHED)` if the subscriptions exceed the group's limit.

        The caller calls `check_memory` once the draft is complete.
        """
        check_subscriptions(
            group.subscription_bytes,
            old.subscription_bytes,
            new.subscription_bytes,
            self._subscriptions_bytes_max,
        )

    def check_memory(self, draft: Draft) -> None:
        """Raise `KafkaError(GROUP_MAX_SIZE_REACHED)` if the draft needs too much memory."""
        # The classic group's memory is free as soon as the draft is committed.
        retired = 0 if draft.retires is None else draft.retires.memory
        more = draft.group.memory - draft.live.memory - retired
        if not self._capacity.has_memory(draft.group_id, more):
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMORY)

    def finish(self, draft: Draft, reply: Any, *effects: Effect) -> Decision:
        """Return the decision that writes the draft, then replies and runs the effects."""
        decision: Decision = Result(draft.records, reply, (_Finish(self, draft), *effects))
        return self._changes.change(draft.group_id, decision)

    def retire(self, now: Now, classic: ClassicGroup) -> None:
        """Remove a classic group that has become a consumer group.

        Its parked requests get REBALANCE_IN_PROGRESS, so that the members join again.
        """
        group_id = classic.group_id
        for kind in (TimerKind.JOIN, TimerKind.SYNC):
            self._deadlines.cancel(TimerKey(kind, group_id))
        for member_id, member in classic.members.items():
            code = ErrorCode.REBALANCE_IN_PROGRESS
            member.answer_join(JoinGroupResponse(error_code=code, member_id=member_id))
            member.answer_sync(SyncGroupResponse(error_code=code))
            self._deadlines.cancel(TimerKey(TimerKind.SESSION, group_id, member_id))
        self._pending.remove_all(classic)
        if self._classic.get(group_id) is classic:
            del self._classic[group_id]
        group = self.by_id.get(group_id)
        for migrated in group.members.values() if group is not None else ():
            self.arm(now, group_id, migrated)

    # Members that leave

    def fence(
        self,
        now: Now,
        group: ConsumerGroup,
        leaving: Collection[str],
        reply: Any,
        *effects: Effect,
    ) -> Decision:
        """Remove members; downgrade the group if no member of the consumer protocol is left."""
        assert group.members.keys() >= set(leaving), "a member leaves once"
        staying = [member for member in group.members.values() if member.member_id not in leaving]
        if staying and self.may_downgrade(staying):
            return self.downgrade(now, Draft(group), leaving, reply, *effects, rebalances=True)
        draft = Draft(group)
        self.rebalancer.remove(draft, leaving)
        disarm = Then(lambda now: self.disarm(group.group_id, leaving))
        return self.finish(draft, reply, disarm, *effects)

    def may_downgrade(self, staying: Collection[ConsumerMember]) -> bool:
        """Return whether a group of these members may become a classic group."""
        return (
            self.config.migration.downgrades
            and len(staying) <= self._classic_members_max
            and all(member.classic is not None for member in staying)
        )

    def downgrade(
        self,
        now: Now,
        draft: Draft,
        leaving: Collection[str],
        reply: Any,
        *effects: Effect,
        rebalances: bool,
    ) -> Decision:
        """Replace the group by a classic group, without the members that leave (KIP-848).

        Args:
            rebalances: whether the members have to join again because the assignment is outdated.
        """
        group_id = draft.group_id
        members = set(draft.group.members) | set(draft.live.members)
        classic = downgraded(draft.group, leaving, self._topics, now.wall_ms)
        draft.delete_group()

        records = [*draft.records, classic_record(classic)]
        install = Then(lambda now: self.install(now, classic, members, rebalances=rebalances))
        return self._changes.change(group_id, Result(records, reply, (install, *effects)))

    def install(
        self, now: Now, classic: ClassicGroup, before: Collection[str], *, rebalances: bool
    ) -> list[Decision]:
        """Serve a classic group that has replaced a consumer group with the members `before`."""
        assert classic.group_id not in self.by_id, "a group has one protocol at a time"
        self.disarm(classic.group_id, before)
        self._classic[classic.group_id] = classic
        for member in classic.members.values():
            self._classic_rebalancer.renew_session(now, classic, member)
        return [self._classic_rebalancer.prepare(now, classic)] if rebalances else []

    # Timers

    def arm(
        self, now: Now, group_id: str, member: ConsumerMember, *, progressed: bool = True
    ) -> None:
        """Set a member's timers by its state.

        Args:
            progressed: whether its assignment has changed, so that the rebalance timeout begins
                again.
        """
        session_ms = self.session_timeout_ms(group_id)
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        self.set_timer(now, TimerKind.SESSION, group_id, member.member_id, session_ms)
        key = TimerKey(TimerKind.REVOKE, group_id, member.member_id)
        # A classic member has REJOIN and RESYNC instead. Heartbeats without progress must not
        # extend the time to revoke: others wait for the partitions.
        if member.state is not MemberState.UNREVOKED_PARTITIONS or member.classic is not None:
            self._deadlines.cancel(key)
        elif progressed or key not in self._deadlines.at:
            self._deadlines.set(key, now.tick_ms + member.rebalance_timeout_ms)

    def set_timer(
        self, now: Now, kind: TimerKind, group_id: str, member_id: str, after_ms: int
    ) -> None:
        """Set a member's timer, in milliseconds from now."""
        self._deadlines.set(TimerKey(kind, group_id, member_id), now.tick_ms + after_ms)

    def set_timer_once(
        self, now: Now, kind: TimerKind, group_id: str, member_id: str, after_ms: int
    ) -> None:
        """Set a member's timer, in milliseconds from now, unless it is set."""
        if TimerKey(kind, group_id, member_id) not in self._deadlines.at:
            self.set_timer(now, kind, group_id, member_id, after_ms)

    def cancel_timer(self, kind: TimerKind, group_id: str, member_id: str) -> None:
        """Cancel a member's timer."""
        self._deadlines.cancel(TimerKey(kind, group_id, member_id))

    def disarm(self, group_id: str, member_ids: Collection[str]) -> None:
        """Cancel all timers of these members."""
        for member_id in member_ids:
            for kind in _MEMBER_TIMERS:
                self.cancel_timer(kind, group_id, member_id)

    def on_timer(self, now: Now, group: ConsumerGroup, key: TimerKey) -> Decision:
        """Remove a member that has missed its session or rebalance timeout."""
        member = group.members.get(key.member_id)
        if member is None:
            return Result()
        if key.kind is TimerKind.REVOKE and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return Result()
        if key.kind in (TimerKind.REJOIN, TimerKind.RESYNC) and member.classic is None:
            return Result()

        # After a failure soon again: the member is still in the group.
        expire = Then(self._expired, lambda now, _: self.set_timer(now, *key, _RETRY_MS))
        return self.fence(now, group, [key.member_id], LATER, expire)

    def _expired(self, now: Now) -> None:
        """Count a member that was removed because it timed out."""
        self._counts.members_expired += 1


@dataclass(slots=True, eq=False)
class _Finish(Effect):
    """Completes the change of a group whose draft was written."""

    groups: ConsumerGroups
    draft: Draft

    def committed(self, now: Now, result: Decision) -> None:
        if self.draft.retires is not None:
            self.groups.retire(now, self.draft.retires)

    def failed(self, now: Now, result: Decision, code: ErrorCode) -> None:
        # `subscribe` has cleared this, and the records with the new topics were not written.
        self.draft.live.refresh_due = True
