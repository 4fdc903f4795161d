"""Builds Fetch requests and reads their responses. No I/O.

Requests have no fetch session: one consumer has so few partitions that their names cost little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakelog.base.errors import ErrorCode, error_code
from lakelog.client.consumer.batches import Batch, is_damaged, with_damaged, without_aborted
from lakelog.client.errors import ClientError, refused
from lakelog.client.offsets import EpochEnd
from lakelog.client.view import Topic
from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from lakelog.records.batch import CorruptRecord, iter_batches

NEWEST_WITH_NAMES = 12
"""The last version of Fetch with topic names; later versions have topic ids only."""


@dataclass(slots=True, frozen=True)
class FetchTarget:
    """One partition of a request: from which offset to read, and how many bytes at most.

    leader_epoch: the leader's epoch as the client knows it. last_fetched_epoch: the latest epoch of
    a record before `offset`, from which the broker detects that the logs diverge; -1 if unknown.
    """

    topic: Topic
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(slots=True, frozen=True)
class Fetched:
    """The response for one target. The other fields are valid only without an error.

    readable_end: the high watermark, or with `read_committed` the last stable offset.
    next_offset: where the next fetch begins, after all fetched batches. Aborted batches are not in
    `batches`.
    next_epoch: the leader epoch of the last record before `next_offset`; -1 if unknown.
    diverged: if set, the logs have diverged and there are no batches: the largest epoch that both
    may have, and where it ends.
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
    """Return the newest usable version; `None` (no limit) if all topics have ids."""
    return None if all(target.topic.has_id for target in targets) else NEWEST_WITH_NAMES


def read_response(
    response: FetchResponse, targets: Sequence[FetchTarget], *, keep_damaged: bool = False
) -> list[Fetched]:
    """Return the partitions of a response in its order.

    Partitions that were not requested are dropped, and so are aborted records if only committed
    ones were requested. Raises `ClientError` for an error of the whole request, a batch with a
    wrong checksum, and a batch that exceeds the limit of its target. With `keep_damaged`, a batch
    with a wrong checksum has a `DamagedHeader` instead, if its limits are certain.
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
                results.append(_fetched(target, row, keep_damaged))
    return results


def _fetched(target: FetchTarget, row: PartitionData, keep_damaged: bool) -> Fetched:
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
        batches = _batches(target, row.records, where, end if keep_damaged else None)
        committed = without_aborted(batches, aborted or ())
    except CorruptRecord as damage:
        raise ClientError(ErrorCode.CORRUPT_MESSAGE, f"{where}: {damage}") from damage
    following, epoch = target.offset, target.last_fetched_epoch
    if batches:
        last = batches[-1][0]
        following, epoch = last.last_offset + 1, last.partition_leader_epoch
    return Fetched(target, error, end, row.log_start_offset, committed, following, epoch)


def _batches(
    target: FetchTarget, records: memoryview, where: str, damaged_end: int | None
) -> list[Batch]:
    """Return the batches from the target's offset on; with `damaged_end`, damaged ones below it.

    Otherwise they end before a damaged one, which is an error once it is the first.
    """
    batches = list(iter_batches(records))
    if not batches:
        text = f"{where}: the next batch is larger than {target.max_bytes} bytes and was cut"
        raise ClientError(ErrorCode.MESSAGE_TOO_LARGE, text)
    if damaged_end is not None:
        batches = with_damaged(batches, records, target.offset, damaged_end)
    unread = [(header, batch) for header, batch in batches if header.last_offset >= target.offset]
    for number, (header, batch) in enumerate(unread) if damaged_end is None else ():
        if is_damaged(header, batch):
            if number:
                return unread[:number]
            text = f"{where}: the batch at offset {header.base_offset} is damaged"
            raise ClientError(ErrorCode.CORRUPT_MESSAGE, text)
    return unread
