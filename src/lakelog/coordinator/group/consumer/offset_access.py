"""Who may commit and fetch the offsets of a consumer group (KIP-848, KIP-1251).

A member speaks for its own epoch. A commit of an older one is taken as well, for partitions that
the member has had ever since: the answer that told it of the new epoch may be on its way.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.consumer.group import ConsumerGroup
from lakelog.coordinator.group.consumer.member import ConsumerMember
from lakelog.coordinator.group.topics import Topics

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
    """Raises `KafkaError` unless these partitions, by topic id, may be committed.

    Args:
        version: of OffsetCommit; None for an offset in a transaction, which asks less of who sends
            it (KIP-447).
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
    """Raises `KafkaError`; whoever gives neither id nor epoch may always fetch."""
    if member_id is None and epoch < 0:
        return
    member = _member(group, member_id or "")
    if epoch != member.member_epoch:
        raise _stale(member)


def commit_partitions(
    topics: Topics, named: Iterable[tuple[str, bytes, Iterable[int]]], *, by_id: bool
) -> list[tuple[bytes, int]]:
    """By topic id, from name, id and partitions; topics there are not have none."""
    found: list[tuple[bytes, int]] = []
    for name, topic_id, partitions in named:
        known = topic_id if by_id else topics.topic_id(name)
        if known is not None:
            found += [(known, partition) for partition in partitions]
    return found


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _stale(member: ConsumerMember) -> KafkaError:
    if member.classic is not None:
        return KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH)
