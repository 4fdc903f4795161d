"""Checks of commits and fetches of a consumer group's offsets (KIP-848, KIP-1251).

A member has to send its own epoch. A commit with an older epoch is accepted for partitions that the
member has owned since then: the response with the new epoch may still be on its way.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.config import Topics
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.member import ConsumerMember

_MEMBER_EPOCHS_SINCE = 9


def check_consumer_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    partitions: Iterable[tuple[bytes, int]],
    *,
    version: int | None,
) -> None:
    """Raise `KafkaError` unless the sender may commit offsets of these partitions.

    Args:
        partitions: topic id and partition.
        version: version of OffsetCommit; None for an offset in a transaction, which may come
            without a member id (KIP-447).

    Raises UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION.
    """
    if epoch < 0 and not group.members:
        return
    nameless = epoch == -1 and not member_id and instance_id is None
    if version is None and nameless:
        return
    member = _member(group, member_id)
    if version is not None and member.classic is None and version < _MEMBER_EPOCHS_SINCE:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group "
            "protocol",
        )
    if epoch == member.member_epoch:
        return
    if epoch > member.member_epoch:
        raise _stale(member)
    for topic_id, partition in partitions:
        since = member.held_since(topic_id, partition)
        if since is None or epoch < since:
            raise _stale(member)


def check_consumer_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raise `KafkaError` unless the sender may fetch offsets.

    A client that sends neither member id nor epoch may always fetch. Raises UNKNOWN_MEMBER_ID,
    STALE_MEMBER_EPOCH or ILLEGAL_GENERATION.
    """
    if member_id is None and epoch < 0:
        return
    member = _member(group, member_id or "")
    if epoch != member.member_epoch:
        raise _stale(member)


def commit_partitions(
    topics: Topics, named: Iterable[tuple[str, bytes, Iterable[int]]], *, by_id: bool
) -> list[tuple[bytes, int]]:
    """Return topic ids and partitions of a commit, without topics that do not exist.

    Args:
        named: name, topic id and partitions of each topic.
        by_id: whether the topic ids count, not the names.
    """
    keys: list[tuple[bytes, int]] = []
    for name, topic_id, partitions in named:
        known_id = topic_id if by_id else topics.topic_id(name)
        if known_id is not None:
            keys += [(known_id, partition) for partition in partitions]
    return keys


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _stale(member: ConsumerMember) -> KafkaError:
    if member.classic is not None:
        return KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH)
