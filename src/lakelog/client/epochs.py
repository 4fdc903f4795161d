"""Ends of leader epochs: they reveal that a log was cut below an offset that was read.

A partition's leader epoch rises with each change or restart of its leader, and each record has the
epoch in which it was appended. If an epoch that a reader has seen up to some offset ends below that
offset, the log was cut there: other records may now have the same offsets.

Source: KIP-101, KIP-320.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, check
from lakelog.client.leaders import AskLeader, TopicPartition, ask_leaders, ask_leaders_once
from lakelog.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_CONSUMER = -1


@dataclass(slots=True, frozen=True)
class EpochEnd:
    """The largest epoch at or below the requested one, and the offset where it ends (exclusive).

    Both are -1 if the log has no such epoch and no later one: it lost all records of the epoch.
    """

    epoch: int
    end_offset: int


def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd]:
    """Return where each partition's leader epoch ends (OffsetForLeaderEpoch).

    The call follows changes of leaders. Raises `TopicNotFoundError`, `PartitionNotFoundError`.
    """
    return ask_leaders(cluster, epochs, _asking(cluster, epochs))


def epoch_ends_at_once(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, EpochEnd], ClientError | None]:
    """Return `epoch_ends` of partitions whose leaders answer now, and the error of others.

    An offline partition does not delay the others. Raises nothing for an error of a broker: the
    second result has it.
    """
    found: dict[TopicPartition, EpochEnd] = {}
    try:
        ask_leaders_once(cluster, epochs, _asking(cluster, epochs), found)
    except ClientError as error:
        return found, error
    return found, None


def _asking(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> AskLeader[EpochEnd]:
    def ask(
        node: int, keys: Sequence[TopicPartition], found: dict[TopicPartition, EpochEnd]
    ) -> None:
        request = _request(cluster, {key: epochs[key] for key in keys})
        _collect(cluster.ask(node, request, OffsetForLeaderEpochResponse), found)

    return ask


def _request(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> OffsetForLeaderEpochRequest:
    """Return the request, with the known leader epochs so that a former leader rejects it."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for (topic, partition), epoch in epochs.items():
        known = cluster.view.topics[topic].partitions[partition]
        row = topics.setdefault(topic, OffsetForLeaderTopic(topic=topic))
        row.partitions.append(
            OffsetForLeaderPartition(
                partition=partition, current_leader_epoch=known.leader_epoch, leader_epoch=epoch
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=list(topics.values()))


def _collect(response: OffsetForLeaderEpochResponse, found: dict[TopicPartition, EpochEnd]) -> None:
    failed = 0
    where = ""
    for topic in response.topics:
        for row in topic.partitions:
            if row.error_code:
                # The answers of other partitions are kept; `ask_leaders` repeats only the missing
                # ones.
                failed, where = row.error_code, f"{topic.topic}-{row.partition}"
                continue
            found[topic.topic, row.partition] = EpochEnd(row.leader_epoch, row.end_offset)
    check(failed, where)
