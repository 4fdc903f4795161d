"""Builds Fetch requests, and reads the batches of their responses. No I/O.

Requests have no fetch session: one consumer has so few partitions that their names cost little.

A reader of committed records gets no records of open transactions. Brokers store and send batches
whole, so a response contains aborted records and a list of the aborted transactions (KIP-98,
"Reading transactional messages").

A checksum shows that a batch is damaged, not where. A reader can continue if the batch's limits
are certain: its length, because the next batch begins after it, and its last offset, because the
next fetch begins there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakelog.base.errors import ErrorCode, error_code
from lakelog.client.errors import ClientError, refused
from lakelog.client.offsets import EpochEnd
from lakelog.client.view import Topic
from lakelog.protocol.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from lakelog.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    CorruptRecord,
    check_crc,
    iter_batches,
    read_header,
)
from lakelog.records.control import read_marker

LEVELS = {"read_uncommitted": False, "read_committed": True}
"""Kafka's names of the levels, and whether each reads committed records only."""

Batch = tuple[BatchHeader, memoryview]


def without_aborted(batches: Iterable[Batch], aborted: Sequence[AbortedTransaction]) -> list[Batch]:
    """Return the batches of a response outside `aborted` transactions; markers stay.

    An aborted transaction reaches from its first offset to the abort marker of its producer. Raises
    `CorruptRecord` for a damaged marker.
    """
    if not aborted:
        return list(batches)
    begins = sorted(aborted, key=lambda row: row.first_offset, reverse=True)
    producers: set[int] = set()
    kept: list[Batch] = []
    for header, batch in batches:
        while begins and begins[-1].first_offset <= header.last_offset:
            producers.add(begins.pop().producer_id)
        if header.producer_id not in producers or not header.is_transactional:
            kept.append((header, batch))
        elif header.is_control:
            kept.append((header, batch))
            marker = read_marker(batch, header)
            if marker is not None and not marker.commit:
                producers.discard(header.producer_id)
    return kept


class DamagedHeader(BatchHeader):
    """The header of a batch with a wrong checksum: only its limits are certain."""

    __slots__ = ()

    @property
    def is_control(self) -> bool:
        """False: the attributes may be damaged, and a reader must not drop the batch."""
        return False

    @property
    def is_transactional(self) -> bool:
        """False, for the same reason."""
        return False


def unserved(offset: int, end: int) -> Batch:
    """Return a damaged batch without bytes: a broker refuses to read [offset, end).

    A broker that finds the damage before a reader does sends an error instead of the batch.
    """
    count = end - offset
    length = HEADER_SIZE - LENGTH_OVERHEAD
    return (
        DamagedHeader(offset, length, -1, MAGIC, 0, 0, count - 1, -1, -1, -1, -1, -1, count),
        memoryview(b""),
    )


def is_damaged(header: BatchHeader, batch: memoryview) -> bool:
    """Return whether a batch has an unknown format or a wrong checksum."""
    return header.magic != MAGIC or not check_crc(batch, 0, header)


def with_damaged(
    batches: Sequence[Batch], records: memoryview, offset: int, end: int
) -> list[Batch]:
    """Return the batches of a response; damaged batches have a `DamagedHeader`.

    records: the bytes of the response, which begin with `batches`. offset: the requested one.
    end: the exclusive end of the readable log. Raises `CorruptRecord` for a damaged batch whose
    limits are not certain.
    """
    kept: list[Batch] = []
    due, position = -1, 0
    for header, batch in batches:
        position += len(batch)
        if is_damaged(header, batch):
            damaged = DamagedHeader(*HEADER.unpack_from(batch))
            # The first batch may begin before the requested offset, but has it.
            is_due = header.base_offset >= due if kept else header.last_offset >= offset
            following = _following(records, position)
            if not (is_due and header.base_offset >= 0 and _ends_right(header, following, end)):
                raise CorruptRecord(
                    f"the batch at offset {header.base_offset} is damaged, and so is its header: "
                    "it is not known where the next batch begins"
                )
            kept.append((damaged, batch))
        else:
            kept.append((header, batch))
        due = header.last_offset + 1
    return kept


def _following(records: memoryview, position: int) -> BatchHeader | None:
    """Return the next header, which may be that of a cut batch. Raises `CorruptRecord`."""
    if len(records) - position < HEADER_SIZE:
        return None
    return read_header(records, position)


def _ends_right(header: BatchHeader, following: BatchHeader | None, end: int) -> bool:
    """Return whether the batch surely has the last offset that its header states.

    The number of records or the next batch must confirm it: with an offset that is too low, the
    offsets after it would be lost without a trace.
    """
    if not 0 < header.last_offset_delta + 1 <= end - header.base_offset:
        return False
    is_full = header.records_count == header.last_offset_delta + 1
    if following is None:
        return is_full
    gap = following.base_offset - header.last_offset - 1
    is_next = following.magic == MAGIC and gap >= 0 and following.base_offset < end
    return is_next and (is_full or gap == 0)


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
