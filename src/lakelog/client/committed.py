"""Offsets that a group has committed: reads and writes them at the coordinator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakelog.client.cluster import Cluster
from lakelog.client.errors import check
from lakelog.client.offsets import TopicPartition
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

_NEWEST_WITH_NAMES = 9


@dataclass(slots=True, frozen=True)
class Committed:
    """The next offset to read, and the metadata and leader epoch committed with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(slots=True, frozen=True)
class Membership:
    """The member that commits. The default is no member, which only an empty group accepts."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


def fetch_committed(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = True,
) -> dict[TopicPartition, Committed]:
    """Return the committed offsets of `partitions`, or of all; partitions without one are left out.

    require_stable: retry while a transaction has pending offsets (KIP-447). Raises `ClientError`:
    UNSTABLE_OFFSET_COMMIT if transactions stay open for the cluster's time limit.
    """
    request = _fetch_request(group, partitions, require_stable=require_stable)

    def work() -> dict[TopicPartition, Committed]:
        response = cluster.ask_coordinator(
            group, request, OffsetFetchResponse, newest=_NEWEST_WITH_NAMES
        )
        return _read_committed(response)

    return cluster.retrying_coordinator(group, work)


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    membership: Membership | None = None,
) -> None:
    """Commit offsets; safe to repeat. Raises `ClientError`, as for a member that was removed."""
    member = membership or Membership()
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, partition), committed in offsets.items():
        row = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic))
        row.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=list(topics.values()),
    )

    def work() -> None:
        response = cluster.ask_coordinator(
            group, request, OffsetCommitResponse, newest=_NEWEST_WITH_NAMES
        )
        for topic in response.topics:
            for row in topic.partitions:
                where = f"commit of {topic.name}-{row.partition_index} for group {group!r}"
                check(row.error_code, where)

    cluster.retrying_coordinator(group, work)


def _fetch_request(
    group: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
) -> OffsetFetchRequest:
    """Return a request with the fields of old and new versions; the version selects the fields."""
    if partitions is None:
        everything = OffsetFetchRequestGroup(group_id=group, topics=None)
        return OffsetFetchRequest(
            group_id=group, topics=None, groups=[everything], require_stable=require_stable
        )
    indexes: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        indexes[topic].append(partition)
    rows = [OffsetFetchRequestTopics(name=t, partition_indexes=p) for t, p in indexes.items()]
    return OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in indexes.items()],
        groups=[OffsetFetchRequestGroup(group_id=group, topics=rows)],
        require_stable=require_stable,
    )


def _read_committed(response: OffsetFetchResponse) -> dict[TopicPartition, Committed]:
    check(response.error_code)
    for group in response.groups:
        check(group.error_code, f"group {group.group_id!r}")
    committed: dict[TopicPartition, Committed] = {}
    rows: list[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]
    rows = [(topic.name, row) for topic in response.topics for row in topic.partitions]
    rows += [
        (topic.name, row)
        for group in response.groups
        for topic in group.topics
        for row in topic.partitions
    ]
    for name, row in rows:
        check(row.error_code, f"committed offset of {name}-{row.partition_index}")
        if row.committed_offset >= 0:
            committed[name, row.partition_index] = Committed(
                row.committed_offset, row.metadata or "", row.committed_leader_epoch
            )
    return committed
