"""OffsetCommit and TxnOffsetCommit; each applies to a group of either protocol, or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.change_queue import GroupRequest
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.config import Topics
from lakelog.coordinator.group.consumer.offset_access import (
    check_consumer_commit,
    commit_partitions,
)
from lakelog.coordinator.group.limits import pending_offset_bytes
from lakelog.coordinator.group.offsets.commit import (
    TOPIC_IDS_SINCE,
    as_offset_commit,
    as_txn_response,
    check_commit,
    check_txn_commit,
    older_code,
    plan_commit,
    refuse_commit,
    refuse_txn_commit,
)
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    TxnOffsetCommitRequest,
)


@dataclass(slots=True, kw_only=True, eq=False)
class OffsetCommit(GroupRequest):
    """OffsetCommit, for a group of either protocol or none.

    A refusal of the whole request is the error code of each of its partitions.
    """

    request: OffsetCommitRequest
    version: int

    allows_empty_key: ClassVar[bool] = True

    def decide_in(self, shard: GroupShard, now: Now) -> Decision:
        """Raise `KafkaError` as `check_commit`, `check_consumer_commit` and
        `ShardLimits.check_offsets`.
        """
        request, state = self.request, shard.state
        group = state.classic.get(self.key)
        records, topics = plan_commit(
            request, self.version, state.topics, state.config.offset_metadata_max, now.wall_ms
        )
        self._check(shard, group)
        _check_capacity(shard, self.key, state.offsets.growth(records))
        if group is not None and (member := group.members.get(request.member_id)) is not None:
            shard.rebalancer.renew_session(now, group, member)
        return Result(records, OffsetCommitResponse(topics=topics))

    def _check(self, shard: GroupShard, group: ClassicGroup | None) -> None:
        request, state = self.request, shard.state
        consumer = state.consumer_groups.get(self.key)
        if consumer is None:
            check_commit(group, self.key in state.offsets, request, self.version)
            return
        check_consumer_commit(
            consumer,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            _partitions(state.topics, request, self.version),
            version=self.version,
        )

    def refuse(self, code: ErrorCode) -> None:
        self.answer(OffsetCommitResponse(topics=refuse_commit(self.request, code)))


@dataclass(slots=True, kw_only=True, eq=False)
class TxnOffsetCommit(GroupRequest):
    """TxnOffsetCommit: offsets that are valid once the transaction is committed.

    The caller has verified that the partition is in the transaction (KIP-890).
    """

    request: TxnOffsetCommitRequest
    version: int

    def decide_in(self, shard: GroupShard, now: Now) -> Decision:
        """Raise `KafkaError` as `check_txn_commit`, `check_consumer_commit` and
        `ShardLimits.check_offsets`.
        """
        request, state = self.request, shard.state
        commit, commit_version = as_offset_commit(request, self.version)
        records, topics = plan_commit(
            commit, commit_version, state.topics, state.config.offset_metadata_max, now.wall_ms
        )
        self._check(shard, _partitions(state.topics, commit, commit_version))
        more = sum(pending_offset_bytes(*record) for record in records)
        _check_capacity(shard, self.key, more)
        producer = (request.producer_id, request.producer_epoch)
        return Result(records, as_txn_response(topics), producer=producer)

    def _check(self, shard: GroupShard, partitions: list[tuple[bytes, int]]) -> None:
        request, state = self.request, shard.state
        consumer = state.consumer_groups.get(self.key)
        if consumer is None:
            has_offsets = self.key in state.offsets or self.key in state.offsets.pending
            check_txn_commit(state.classic.get(self.key), has_offsets, request, self.version)
            return
        try:
            check_consumer_commit(
                consumer,
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                partitions,
                version=None,
            )
        except KafkaError as error:
            raise KafkaError(older_code(error.code, self.version)) from error

    def refuse(self, code: ErrorCode) -> None:
        self.answer(refuse_txn_commit(self.request, code))


def _check_capacity(shard: GroupShard, group_id: str, more: int) -> None:
    exists = shard.state.any_group(group_id) is not None
    shard.state.capacity.check_offsets(group_id, more, exists=exists)


def _partitions(
    topics: Topics, request: OffsetCommitRequest, version: int
) -> list[tuple[bytes, int]]:
    named = (
        (topic.name, topic.topic_id, (row.partition_index for row in topic.partitions))
        for topic in request.topics
    )
    return commit_partitions(topics, named, by_id=version >= TOPIC_IDS_SINCE)
