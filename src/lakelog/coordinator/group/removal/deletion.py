"""DeleteGroups (versions 0 to 3) and OffsetDelete (version 0).

A group with members cannot be deleted, nor can offsets of topics that the group subscribes to.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.classic.group import GroupState
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.migration import (
    CONSUMER,
    classic_tombstone,
    consumer_tombstones,
)
from lakelog.coordinator.group.offsets.expiry import subscribed_topics
from lakelog.coordinator.group.offsets.table import OffsetTable, tombstones
from lakelog.coordinator.group.records.codec import Decision, Record
from lakelog.coordinator.group.records.offset import OffsetCommitKey
from lakelog.coordinator.group.state import AnyGroup, ShardState
from lakelog.coordinator.group.topics import Topics
from lakelog.coordinator.shard import Now, Result
from lakelog.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


class Deletions:
    """Decisions that delete groups and offsets of one shard."""

    def __init__(self, state: ShardState) -> None:
        self._state = state

    def delete_group(
        self, group_id: str, reply: Callable[[], None], refuse: Callable[[ErrorCode], None]
    ) -> Decision:
        """Delete a group with its offsets, also offsets of open transactions.

        Raises `KafkaError`: GROUP_ID_NOT_FOUND without group and offsets, NON_EMPTY_GROUP for a
        group with members.
        """
        state = self._state
        group = state.any_group(group_id)
        _check_delete(group, group_id, known=_has_offsets(state.offsets, group_id))
        records = [*all_offsets(state.offsets, group_id), *group_tombstones(group, group_id)]

        # The live group goes only after the commit: until then members that join find the group
        # as the log has it.
        def committed(_: Now) -> None:
            if (classic := state.classic.pop(group_id, None)) is not None:
                state.pending.remove_all(classic)
            reply()

        def failed(_: Now, code: ErrorCode) -> None:
            refuse(code)

        return state.changes.change(group_id, Result(records, committed, failed))

    def delete_offsets(
        self,
        request: OffsetDeleteRequest,
        reply: Callable[[OffsetDeleteResponse], None],
        refuse: Callable[[ErrorCode], None],
    ) -> Decision:
        """Delete offsets of topics that the group does not subscribe to (KIP-496).

        Raises `KafkaError` with GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if a group with members does
        not use the consumer protocol type, so that its subscriptions are unknown.
        """
        state = self._state
        group = state.any_group(request.group_id)
        if group is None and not _has_offsets(state.offsets, request.group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        read = _topics_read(group)
        records, response = _plan(request, read, state.offsets, state.topics)

        def committed(_: Now) -> None:
            reply(response)

        def failed(_: Now, code: ErrorCode) -> None:
            refuse(code)

        return Result(records, committed, failed)


def _check_delete(group: AnyGroup | None, group_id: str, *, known: bool) -> None:
    if group is None and not known:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if isinstance(group, ConsumerGroup):
        empty = not group.members
    else:
        empty = group is None or group.state is GroupState.EMPTY
    if not empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


def group_tombstones(group: AnyGroup | None, group_id: str) -> list[Record]:
    """Return the tombstones of a group, without its offsets."""
    if isinstance(group, ConsumerGroup):
        return consumer_tombstones(group).records
    return [classic_tombstone(group_id)]


def _has_offsets(table: OffsetTable, group_id: str) -> bool:
    """Return whether the group has committed offsets or offsets in open transactions."""
    return group_id in table or group_id in table.pending


def all_offsets(table: OffsetTable, group_id: str) -> list[Record]:
    """Return tombstones of a group's offsets, committed or in open transactions."""
    committed = {
        (topic, partition)
        for topic, partitions in table.of_group(group_id).items()
        for partition in partitions
    }
    keys = [
        OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        for topic, partition in sorted(committed.union(table.pending.of_group(group_id)))
    ]
    return [*tombstones(keys)]


def _plan(
    request: OffsetDeleteRequest,
    read: frozenset[str] | None,
    table: OffsetTable,
    topics: Topics,
) -> tuple[list[Record], OffsetDeleteResponse]:
    """Return the tombstones and the response; with `read` None, all topics may be subscribed."""
    keys: list[OffsetCommitKey] = []
    response = OffsetDeleteResponse()
    for topic in request.topics:
        answer = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(answer)
        for asked in topic.partitions:
            index = asked.partition_index
            code = ErrorCode.NONE
            if not 0 <= index < topics.partition_count(topic.name):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif read is None or topic.name in read:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif _has_offset(table, request.group_id, topic.name, index):
                keys.append(
                    OffsetCommitKey(group=request.group_id, topic=topic.name, partition=index)
                )
            answer.partitions.append(
                OffsetDeleteResponsePartition(partition_index=index, error_code=code)
            )
    return [*tombstones(keys)], response


def _has_offset(table: OffsetTable, group_id: str, topic: str, partition: int) -> bool:
    committed = table.of_group(group_id).get(topic, {})
    return partition in committed or table.pending.is_pending(group_id, topic, partition)


def _topics_read(group: AnyGroup | None) -> frozenset[str] | None:
    """Return the topics that a group subscribes to, None if they are unknown."""
    if isinstance(group, ConsumerGroup):
        return frozenset(group.subscribed_topics())
    if group is None or group.state is GroupState.EMPTY:
        return frozenset()
    if group.protocol_type != CONSUMER:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    return subscribed_topics(group)
