"""OffsetCommit, TxnOffsetCommit and OffsetFetch, for a group of either protocol, or none.

OffsetFetch has versions 1 to 10: one group before version 8, several since. A partition without a
committed offset gets offset -1 without an error, and so does a group that does not exist. With
`require_stable`, a partition with an offset in an open transaction gets UNSTABLE_OFFSET_COMMIT
(KIP-447).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.uuids import ZERO_UUID
from lakelog.coordinator.group.change_queue import GroupRequest
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.config import Topics
from lakelog.coordinator.group.limits import pending_offset_bytes
from lakelog.coordinator.group.offset_commits import (
    TOPIC_IDS_SINCE,
    as_offset_commit,
    as_txn_response,
    check_commit,
    check_consumer_commit,
    check_txn_commit,
    commit_partitions,
    older_code,
    plan_commit,
    refuse_commit,
    refuse_txn_commit,
)
from lakelog.coordinator.group.offsets import OffsetTable
from lakelog.coordinator.group.records import Decision, OffsetCommitValue
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol import offsets as messages

_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10


def fetch_offsets(
    request: messages.OffsetFetchRequest,
    version: int,
    table_of: Callable[[messages.OffsetFetchRequestGroup], OffsetTable],
    topics: Topics,
) -> messages.OffsetFetchResponse:
    """Return the response to OffsetFetch; errors are codes in it (KIP-709: for each group).

    Args:
        table_of: returns the offsets of a group's partition; raises `KafkaError` if this broker
            does not coordinate the group, or the sender may not fetch its offsets.
    """
    if version >= _GROUPS_SINCE:
        groups = [
            _fetch_group(group, version, table_of, topics, stable=request.require_stable)
            for group in {group.group_id: group for group in request.groups}.values()
        ]
        return messages.OffsetFetchResponse(groups=groups)
    requested = None
    if request.topics is not None:
        requested = [
            messages.OffsetFetchRequestTopics(
                name=topic.name, partition_indexes=topic.partition_indexes
            )
            for topic in request.topics
        ]
    group = messages.OffsetFetchRequestGroup(group_id=request.group_id, topics=requested)
    fetched = _fetch_group(group, version, table_of, topics, stable=request.require_stable)
    return _older_response(fetched, requested)


def _fetch_group(
    group: messages.OffsetFetchRequestGroup,
    version: int,
    table_of: Callable[[messages.OffsetFetchRequestGroup], OffsetTable],
    topics: Topics,
    *,
    stable: bool,
) -> messages.OffsetFetchResponseGroup:
    try:
        table = table_of(group)
    except KafkaError as error:
        return messages.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    if group.topics is None:
        answers = _all_topics(table, group.group_id, topics)
    else:
        answers = [
            _one_topic(table, group.group_id, topic, version, topics) for topic in group.topics
        ]
    # Last, so that topics named by id and the list of all topics are treated alike.
    if stable:
        _mark_unstable(table, group.group_id, answers, topics)
    return messages.OffsetFetchResponseGroup(group_id=group.group_id, topics=answers)


def _mark_unstable(
    table: OffsetTable,
    group_id: str,
    answers: list[messages.OffsetFetchResponseTopics],
    topics: Topics,
) -> None:
    """Replace offsets that an open transaction may replace by UNSTABLE_OFFSET_COMMIT."""
    if group_id not in table.pending:
        return
    for topic in answers:
        name = topic.name or topics.topic_name(topic.topic_id) or ""
        topic.partitions = [
            _partition(partition.partition_index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if table.pending.is_pending(group_id, name, partition.partition_index)
            else partition
            for partition in topic.partitions
        ]


def _all_topics(
    table: OffsetTable, group_id: str, topics: Topics
) -> list[messages.OffsetFetchResponseTopics]:
    """Return every offset of the group, except of deleted topics."""
    answers = []
    for name in table.of_group(group_id):
        topic_id = topics.topic_id(name)
        if topic_id is None:
            continue
        offsets = [
            (partition, table.find(group_id, name, topic_id, partition))
            for partition in table.of_group(group_id)[name]
        ]
        partitions = [_partition(index, value) for index, value in offsets if value is not None]
        if partitions:
            answers.append(
                messages.OffsetFetchResponseTopics(
                    name=name, topic_id=topic_id, partitions=partitions
                )
            )
    return answers


def _one_topic(
    table: OffsetTable,
    group_id: str,
    topic: messages.OffsetFetchRequestTopics,
    version: int,
    topics: Topics,
) -> messages.OffsetFetchResponseTopics:
    by_id = version >= _TOPIC_IDS_SINCE
    name = topics.topic_name(topic.topic_id) if by_id else topic.name
    code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE
    topic_id = topics.topic_id(name) if name is not None else None
    return messages.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _partition(
                partition,
                table.find(group_id, name or "", topic_id or ZERO_UUID, partition),
                code,
            )
            for partition in topic.partition_indexes
        ],
    )


def _partition(
    partition: int, value: OffsetCommitValue | None, code: ErrorCode = ErrorCode.NONE
) -> messages.OffsetFetchResponsePartitions:
    if value is None:
        return messages.OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=-1, metadata="", error_code=code
        )
    return messages.OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _older_response(
    group: messages.OffsetFetchResponseGroup,
    requested: Iterable[messages.OffsetFetchRequestTopics] | None,
) -> messages.OffsetFetchResponse:
    """Return the response for one group (before version 8).

    Before version 2 the response has no error code of its own; each partition gets it. Later
    versions have both. Apache Kafka answers no partitions then; clients that read only the codes
    of partitions (aiokafka 0.14) would begin as if the group had committed nothing.
    """
    answers = group.topics
    if group.error_code:
        code = ErrorCode(group.error_code)
        answers = [
            messages.OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[_partition(index, None, code) for index in topic.partition_indexes],
            )
            for topic in requested or ()
        ]
    return messages.OffsetFetchResponse(
        error_code=group.error_code, topics=[_older_topic(topic) for topic in answers]
    )


def _older_topic(topic: messages.OffsetFetchResponseTopics) -> messages.OffsetFetchResponseTopic:
    return messages.OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            messages.OffsetFetchResponsePartition(
                partition_index=partition.partition_index,
                committed_offset=partition.committed_offset,
                committed_leader_epoch=partition.committed_leader_epoch,
                metadata=partition.metadata,
                error_code=partition.error_code,
            )
            for partition in topic.partitions
        ],
    )


@dataclass(slots=True, kw_only=True, eq=False)
class OffsetCommit(GroupRequest):
    """OffsetCommit, for a group of either protocol or none.

    A refusal of the whole request is the error code of each of its partitions.
    """

    request: messages.OffsetCommitRequest
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
        return Result(records, messages.OffsetCommitResponse(topics=topics))

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
        self.answer(messages.OffsetCommitResponse(topics=refuse_commit(self.request, code)))


@dataclass(slots=True, kw_only=True, eq=False)
class TxnOffsetCommit(GroupRequest):
    """TxnOffsetCommit: offsets that are valid once the transaction is committed.

    The caller has verified that the partition is in the transaction (KIP-890).
    """

    request: messages.TxnOffsetCommitRequest
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
    topics: Topics, request: messages.OffsetCommitRequest, version: int
) -> list[tuple[bytes, int]]:
    named = (
        (topic.name, topic.topic_id, (row.partition_index for row in topic.partitions))
        for topic in request.topics
    )
    return commit_partitions(topics, named, by_id=version >= TOPIC_IDS_SINCE)
