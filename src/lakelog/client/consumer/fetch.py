"""Fetch requests and what their answers mean; no I/O.

Requests are sessionless: at the sizes of one consumer the partitions' names cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakelog.base.errors import ErrorCode
from lakelog.client.epochs import EpochEnd
from lakelog.client.errors import ClientError, error_code, refused
from lakelog.client.isolation import Batch, without_aborted
from lakelog.client.view import Topic
from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from lakelog.records.batch import CorruptRecord, check_crc, iter_batches

NEWEST_WITH_NAMES = 12
"""From the next version of Fetch on, topics go by id only."""


@dataclass(slots=True, frozen=True)
class FetchTarget:
    """From where to read a partition, and how much at most (bytes).

    leader_epoch: the leader's, as known here. last_fetched_epoch: one that no record before
    `offset` exceeds, by which the broker notices that its log is another one; -1 for unknown.
    """

    topic: Topic
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(slots=True, frozen=True)
class Fetched:
    """What came of a target. Only without an error do the other fields mean anything.

    readable_end: where reading ends for now: the high watermark, or with `read_committed` the last
    stable offset.
    next_offset: where the next fetch begins, behind all that came; aborted batches are not among
    `batches`.
    next_epoch: the leader epoch of the last record before `next_offset`, as far as it is known.
    diverged: if not none, the log is another one, and there are no batches; the largest epoch that
    both may have, and where it ends.
    """

    target: FetchTarget
    error: ErrorCode
    readable_end: int
    log_start_offset: int
    batches: list[Batch]
    next_offset: int
    next_epoch: int = -1
    diverged: EpochEnd | None = None


def fetch_request(
    targets: Sequence[FetchTarget],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    read_committed: bool,
) -> FetchRequest:
    topics: dict[str, FetchTopic] = {}
    for target in targets:
        name = target.topic.name
        if name not in topics:
            topics[name] = FetchTopic(topic=name, topic_id=target.topic.topic_id)
        topics[name].partitions.append(
            FetchPartition(
                partition=target.partition,
                current_leader_epoch=target.leader_epoch,
                fetch_offset=target.offset,
                last_fetched_epoch=target.last_fetched_epoch,
                partition_max_bytes=target.max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        topics=list(topics.values()),
    )


def newest_version(targets: Iterable[FetchTarget]) -> int | None:
    """The version limit for these targets: none if all topics have ids."""
    return None if all(target.topic.has_id for target in targets) else NEWEST_WITH_NAMES


def read_response(response: FetchResponse, targets: Sequence[FetchTarget]) -> list[Fetched]:
    """The answer's partitions in its own order; what was not asked for is dropped, and what was
    aborted if only committed records were asked for.

    Raises `ClientError` for an error of the whole request, a batch with a wrong checksum, and a
    batch that cannot be delivered whole.
    """
    if response.error_code:
        raise refused(error_code(response.error_code), "fetch")
    by_id = {(t.topic.topic_id, t.partition): t for t in targets if t.topic.has_id}
    by_name = {(t.topic.name, t.partition): t for t in targets}
    results = []
    for topic in response.responses:
        for row in topic.partitions:
            target = by_name.get((topic.topic, row.partition_index))
            target = target or by_id.get((topic.topic_id, row.partition_index))
            if target is not None:
                results.append(_fetched(target, row))
    return results


def _fetched(target: FetchTarget, row: PartitionData) -> Fetched:
    error = error_code(row.error_code)
    aborted = row.aborted_transactions
    end = row.high_watermark if aborted is None else row.last_stable_offset
    if error or not row.records:
        diverging = row.diverging_epoch
        diverged = None
        if not error and diverging.end_offset >= 0:
            diverged = EpochEnd(diverging.epoch, diverging.end_offset)
        epoch = target.last_fetched_epoch
        start = row.log_start_offset
        return Fetched(target, error, end, start, [], target.offset, epoch, diverged)
    where = f"{target.topic.name}-{target.partition} from offset {target.offset}"
    try:
        batches = _batches(target, row.records, where)
        committed = without_aborted(batches, aborted or ())
    except CorruptRecord as damage:
        raise ClientError(ErrorCode.CORRUPT_MESSAGE, f"{where}: {damage}") from damage
    following, epoch = target.offset, target.last_fetched_epoch
    if batches:
        last = batches[-1][0]
        following, epoch = last.last_offset + 1, last.partition_leader_epoch
    return Fetched(target, error, end, row.log_start_offset, committed, following, epoch)


def _batches(target: FetchTarget, records: memoryview, where: str) -> list[Batch]:
    batches = list(iter_batches(records))
    if not batches:
        text = f"{where}: the next batch is larger than {target.max_bytes} bytes and was cut"
        raise ClientError(ErrorCode.MESSAGE_TOO_LARGE, text)
    for header, batch in batches:
        if header.magic != 2 or not check_crc(batch, 0, header):
            text = f"{where}: the batch at offset {header.base_offset} is damaged"
            raise ClientError(ErrorCode.CORRUPT_MESSAGE, text)
    return [(header, batch) for header, batch in batches if header.last_offset >= target.offset]
