"""The groups and offsets of one partition of `__consumer_offsets`.

Durable state is in `state`, and only `replay` changes it: the offset table, the last written
generation of each classic group, and the consumer groups. Live classic groups, timers and waiting
requests are soft state; `loaded` builds them from the durable state.

A group has one protocol at a time. A request of either protocol applies to the existing group
(`requests.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.change_queue import TimerKey, TimerKind
from lakelog.coordinator.group.classic.admission import Admission
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.classic.join import Joins
from lakelog.coordinator.group.classic.member_requests import Leaves, Syncs
from lakelog.coordinator.group.config import GroupConfig, Overrides, Topics
from lakelog.coordinator.group.consumer.classic_members import ClassicMembers
from lakelog.coordinator.group.consumer.heartbeat import ConsumerHeartbeats
from lakelog.coordinator.group.limits import GroupCounts, GroupLimits
from lakelog.coordinator.group.offsets import tombstones
from lakelog.coordinator.group.queries import Queries
from lakelog.coordinator.group.records import (
    Decision,
    OffsetRecord,
    Record,
    decode_record,
    encode_record,
)
from lakelog.coordinator.group.removal import Cleanup, Deletions, Evictions
from lakelog.coordinator.group.state import DueTimer, ShardState
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol.groups import JoinGroupResponse, SyncGroupResponse
from lakelog.runtime.api import Random


class GroupShard:
    """The groups of one partition. Every decision about a group passes `changes`."""

    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        random: Random,
        overrides: Overrides,
        limits: GroupLimits,
        counts: GroupCounts,
    ) -> None:
        self.config = config
        self.state = state = ShardState(config, overrides, topics, limits, counts)
        self.deadlines = state.deadlines
        self.rebalancer = state.rebalancer
        self.changes = state.changes
        self.changes.shard = self
        joins = Joins(state.classic, state.rebalancer, state.pending, random, state.changes)
        self.admission = Admission(
            config, state.classic, state.rebalancer, state.pending, state.capacity, joins
        )
        self.syncs = Syncs(state.rebalancer, state.capacity)
        self.leaves = Leaves(state.rebalancer, state.pending)
        self.heartbeats = ConsumerHeartbeats(state.consumers, random)
        self.classic_members = ClassicMembers(state.consumers, topics, random)
        self._cleanup = Cleanup(state)
        self.evictions = Evictions(state, counts)
        self.deletions = Deletions(state)
        self.queries = Queries(state)

    # The interface of a shard (`lakelog.coordinator.shard`)

    encode = staticmethod(encode_record)
    decode = staticmethod(decode_record)

    def replay(self, record: Record) -> None:
        """Apply a committed record outside of any transaction."""
        self.state.replay(record)

    def replay_pending(self, record: Record, producer_id: int) -> None:
        """Keep an offset of an open transaction; its marker decides (KIP-98)."""
        if isinstance(record, OffsetRecord):
            self.state.offsets.pending.add(record, producer_id)

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        """Apply or drop the pending offsets of a producer's transaction."""
        self.state.offsets.replay_end(producer_id, commit=commit)

    def loaded(self, now: Now) -> list[Decision]:
        """Begin to serve with new sessions: while loading, no heartbeat was accepted.

        Return the decisions of rebalances, of groups with more members than now allowed.
        """
        assert not self.state.classic, "live groups begin with the end of the log"
        results: list[Decision] = []
        for group_id, value in self.state.classic.stored.items():
            group = self.state.classic[group_id] = ClassicGroup.from_stored(group_id, value)
            for member in group.members.values():
                self.rebalancer.renew_session(now, group, member)
            if len(group.members) > self.config.members_max:
                results.append(self.changes.write(group_id, self.rebalancer.prepare(now, group)))
        self.state.consumers.loaded(now)
        self._cleanup.schedule(now)
        self.state.group_count.open()
        self.state.offsets_group_count.open()
        return results

    def unloaded(self, code: ErrorCode) -> None:
        """Answer all parked requests with `code`, and return memory and counts."""
        for group in self.state.classic.values():
            for member in group.members.values():
                member.answer_join(JoinGroupResponse(error_code=code, member_id=member.member_id))
                member.answer_sync(SyncGroupResponse(error_code=code))
        self.changes.unloaded(code)
        self.state.close()

    def on_due(self, now: Now, key: TimerKey) -> list[Decision]:
        """Return the decisions of a timer that has fired."""
        if key.kind is TimerKind.EXPIRY:
            return self._cleanup.expire(now)
        if key.kind is TimerKind.QUEUE:
            return self.changes.resume(now, key.group_id)
        is_exclusive = key.group_id in self.state.consumer_groups
        return [self.changes.enter(now, DueTimer(self.state, key, key.group_id, is_exclusive))]

    # Freeing capacity

    def expire_soon(self) -> Decision:
        """Have the next check for expired offsets run as soon as allowed."""
        self.state.expire_soon()
        return Result()

    # Changes of topics

    def topics_changed(self, names: Collection[str], *, are_new: bool) -> None:
        """Note that topics were created, deleted or given partitions."""
        self.state.consumers.topics_changed(names, are_new=are_new)

    def topic_deleted(self, topic: str, topic_id: bytes) -> Decision:
        """Delete the offsets committed to a deleted topic."""
        return Result(tombstones(self.state.offsets.of_topic(topic, topic_id)))
