"""Offsets of partitions, asked of their leaders: by time with start and end, and of leader epochs.

A partition's leader epoch rises with each change or restart of its leader, and each record has the
epoch in which it was appended. If an epoch that a reader has seen up to some offset ends below that
offset, the log was cut there: other records may now have the same offsets.

Source: KIP-101, KIP-320.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, ConnectionLostError, UnreachableError, check
from lakelog.protocol import fetch as messages

TopicPartition = tuple[str, int]
T = TypeVar("T")

AskLeader = Callable[[int, Sequence[TopicPartition], dict[TopicPartition, T]], None]
"""A function that asks one broker (by node id) about partitions and adds the answers.

It raises `ClientError` if the broker rejects some partitions, after it added the answers of the
others."""


def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: AskLeader[T],
    answers: dict[TopicPartition, T] | None = None,
) -> dict[TopicPartition, T]:
    """Return the answer for each of `partitions`; follow changes of leaders.

    answers: gets the answers, and keeps them when the call fails.

    The request must be safe to repeat. Raises `TopicNotFoundError`, `PartitionNotFoundError`, and
    the last `ClientError` after the cluster's time limit.
    """
    keys = list(partitions)
    answers = {} if answers is None else answers

    def work() -> dict[TopicPartition, T]:
        missing = [key for key in keys if key not in answers]
        try:
            ask_leaders_once(cluster, missing, ask, answers)
        except Exception as error:
            # The error may come from a former leader.
            cluster.refresh({topic for topic, _ in missing})
            if isinstance(error, ConnectionLostError):
                raise UnreachableError.after(error) from error
            raise
        return answers

    return cluster.retrying(work)


def ask_leaders_once(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: AskLeader[T],
    answers: dict[TopicPartition, T],
) -> None:
    """Add the answers of all leaders of `partitions` to `answers`.

    A partition without a leader, or a failure at one leader, does not prevent the answers of
    others. Raises the first `ClientError` after all leaders were asked.
    """
    failure: ClientError | None = None
    nodes: dict[int, list[TopicPartition]] = defaultdict(list)
    for topic, partition in partitions:
        try:
            nodes[cluster.leader(topic, partition).node_id].append((topic, partition))
        except ClientError as error:
            failure = failure or error
    for node, keys in nodes.items():
        try:
            ask(node, keys, answers)
        except ClientError as error:
            failure = failure or error
    if failure is not None:
        raise failure


LATEST = -1
"""The offset after the last readable record."""
EARLIEST = -2
"""The start of the log."""
MAX_TIMESTAMP = -3
"""The record with the largest timestamp."""
_KNOWN_WITHIN_S = 2.0
"""Longer than a change of leaders in a healthy cluster."""


@dataclass(slots=True, frozen=True)
class OffsetAt:
    """The result for one partition.

    offset: -1 if no record is at or after the time. timestamp: that of the record, in milliseconds
    since the epoch; -1 for `LATEST` and `EARLIEST`. leader_epoch: that of the record, or for
    `LATEST` the leader's own; -1 if the broker does not know it.
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1


def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, OffsetAt]:
    """Return the first offset at or after each timestamp.

    timestamps: milliseconds since the epoch, or a constant of this module. The call follows changes
    of leaders. Raises `TopicNotFoundError`, `PartitionNotFoundError`.
    """
    return _list_into({}, cluster, timestamps, read_committed=read_committed)


def known_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAt]:
    """Return what `list_offsets` returns, without the partitions whose offsets are unknown now.

    A leader may be dead, or not know its high watermark yet (OFFSET_NOT_AVAILABLE): until the
    present followers have answered a new leader, for example. Such a partition is asked for again
    for two seconds. Raises errors that are not retriable as `list_offsets` does.
    """
    offsets: dict[TopicPartition, OffsetAt] = {}
    with cluster.hurrying(_KNOWN_WITHIN_S):
        try:
            _list_into(offsets, cluster, timestamps, read_committed=False)
        except ClientError as error:
            if not error.retriable:
                raise
    return offsets


def _list_into(
    offsets: dict[TopicPartition, OffsetAt],
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
) -> dict[TopicPartition, OffsetAt]:
    """Add the offsets to `offsets` and return it; it keeps other offsets when the call fails."""

    def ask(
        node: int, keys: Sequence[TopicPartition], answers: dict[TopicPartition, OffsetAt]
    ) -> None:
        times = {key: timestamps[key] for key in keys}
        request = _request(times, int(read_committed), int(cluster.request_timeout_s * 1000))
        response = cluster.ask(node, request, messages.ListOffsetsResponse)
        rows = (
            (
                (topic.name, row.partition_index),
                row.error_code,
                OffsetAt(row.offset, row.timestamp, row.leader_epoch),
            )
            for topic in response.topics
            for row in topic.partitions
        )
        _collect(rows, answers)

    return ask_leaders(cluster, timestamps, ask, offsets)


def _request(
    times: Mapping[TopicPartition, int], isolation_level: int, timeout_ms: int
) -> messages.ListOffsetsRequest:
    topics: dict[str, messages.ListOffsetsTopic] = {}
    for (topic, partition), time in times.items():
        row = topics.setdefault(topic, messages.ListOffsetsTopic(name=topic))
        row.partitions.append(
            messages.ListOffsetsPartition(partition_index=partition, timestamp=time)
        )
    return messages.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=list(topics.values()),
        timeout_ms=timeout_ms,
    )


def _collect(
    rows: Iterable[tuple[TopicPartition, int, T]], answers: dict[TopicPartition, T]
) -> None:
    """Add the answers of partitions (with their error codes). Raises the last error."""
    failed = 0
    where = ""
    for (topic, partition), code, answer in rows:
        if code:
            # The answers of other partitions are kept; `ask_leaders` repeats only the missing ones.
            failed, where = code, f"{topic}-{partition}"
        else:
            answers[topic, partition] = answer
    check(failed, where)


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
    ends: dict[TopicPartition, EpochEnd] = {}
    try:
        ask_leaders_once(cluster, epochs, _asking(cluster, epochs), ends)
    except ClientError as error:
        return ends, error
    return ends, None


def _asking(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> AskLeader[EpochEnd]:
    def ask(
        node: int, keys: Sequence[TopicPartition], ends: dict[TopicPartition, EpochEnd]
    ) -> None:
        request = _epochs_request(cluster, {key: epochs[key] for key in keys})
        response = cluster.ask(node, request, messages.OffsetForLeaderEpochResponse)
        rows = (
            (
                (topic.topic, row.partition),
                row.error_code,
                EpochEnd(row.leader_epoch, row.end_offset),
            )
            for topic in response.topics
            for row in topic.partitions
        )
        _collect(rows, ends)

    return ask


def _epochs_request(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> messages.OffsetForLeaderEpochRequest:
    """Return the request, with the known leader epochs so that a former leader rejects it."""
    topics: dict[str, messages.OffsetForLeaderTopic] = {}
    for (topic, partition), epoch in epochs.items():
        current = cluster.view.topics[topic].partitions[partition]
        row = topics.setdefault(topic, messages.OffsetForLeaderTopic(topic=topic))
        row.partitions.append(
            messages.OffsetForLeaderPartition(
                partition=partition, current_leader_epoch=current.leader_epoch, leader_epoch=epoch
            )
        )
    return messages.OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=list(topics.values()))
