"""Reading records, and finding the offsets at which a reader begins or diverges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.fetch import (
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from lakelog.replica.fetch_session import follower_of
from lakelog.replica.partition import Partition
from lakelog.server.authentication import is_broker
from lakelog.server.broker import Broker
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.fast_path.fetch import cache_request
from lakelog.server.fetches.pending import FetchReply, PendingFetch
from lakelog.server.fetches.reading import READ_COMMITTED
from lakelog.server.requests.context import DEFERRED, Context, Deferred
from lakelog.server.served_api import ServedApi

_CODE_SINCE = 7
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_SINCE_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED = 1
_ANY_REPLICA = -2
_OFFSET_NOT_AVAILABLE_SINCE = 5


def fetch(broker: Broker, context: Context, request: FetchRequest) -> FetchResponse | Deferred:
    """Fetch (1): returns record batches as they are stored, sent from the segment files.

    A fetch is answered when it has found `min_bytes`, when a partition has an error, or after
    `max_wait_ms`; until then it is parked on its partitions. The first partition with data returns
    at least one whole batch, however large, so that a consumer can always proceed (KIP-74).

    With `read_committed`, records end before the first open transaction, and the response lists the
    aborted transactions among them, which consumers skip (KIP-98).

    From version 12 on a request may have the epoch of the reader's last record. If the log does not
    have that record, the response has the diverging offset at once, and no records (KIP-595).

    An error of the fetch session is the error of the response (KIP-227). Only the follower itself
    may fetch in its name: its position decides which records are committed.
    """
    follower = follower_of(request, context.version)
    if follower is not None and not is_broker(context.principal, follower.node_id):
        return refuse(broker, context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    now = broker.clock.monotonic()
    try:
        plan = broker.fetch_sessions.begin(request, context.version, now)
    except KafkaError as error:
        return refuse(broker, context, request, error.code)
    committed = request.isolation_level == READ_COMMITTED
    reply = FetchReply(broker, context, plan, committed=committed)
    PendingFetch(broker, context, request, plan, reply, now, follower).start()
    return DEFERRED


def refuse(
    broker: Broker, context: Context, request: FetchRequest, code: ErrorCode
) -> FetchResponse:
    """Answer with the code alone.

    Raises `ProtocolViolation` before version 7, in which a response without partitions has no code.
    """
    if context.version < _CODE_SINCE:
        raise ProtocolViolation(f"Fetch v{context.version} is refused with {code.name}")
    broker.requests.errors["Fetch", code] += 1
    context.was_rejected = True
    return FetchResponse(error_code=code)


def list_offsets(
    broker: Broker, context: Context, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """ListOffsets (2): returns the first offset, the end, or the offset at a time of partitions.

    With `read_committed` the end is the last stable offset, and offsets at a time beyond it are not
    returned.

    A new leader may not know yet how far the records of earlier epochs were committed. Until its
    high watermark has reached the start of its epoch, it returns no end: clients may have seen a
    higher offset (KIP-207).

    With the replica id -2 ("debugging", as in Apache Kafka) each broker returns the end of its own
    log and the epoch of its last record, also for partitions that it does not lead or that have no
    leader: an operator compares them before an unclean election.

    Searches for a time are awaited. Each partition has its own error code; a partition that is
    named twice has INVALID_REQUEST.
    """
    committed = request.isolation_level == _READ_COMMITTED
    topics = []
    repeated = _repeated(request)
    searches: list[_Lookup] = []
    for topic in request.topics:
        results = []
        for entry in topic.partitions:
            try:
                if (topic.name, entry.partition_index) in repeated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                if request.replica_id == _ANY_REPLICA and entry.timestamp == LATEST:
                    result = _log_end(broker, topic.name, entry.partition_index)
                else:
                    partition = broker.partitions.leader(topic.name, entry.partition_index)
                    partition.check_epoch(entry.current_leader_epoch)
                    result = _offset(partition, entry, committed, context.version)
                if entry.timestamp >= 0 or entry.timestamp == MAX_TIMESTAMP:
                    searches.append(_Lookup(partition, entry.timestamp, result))
            except KafkaError as error:
                result = ListOffsetsPartitionResponse(error_code=error.code)
            result.partition_index = entry.partition_index
            results.append(result)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    response = ListOffsetsResponse(topics=topics)
    if not searches:
        return response
    return _search(broker, response, searches, committed, context.version)


class _Lookup(NamedTuple):
    """A search by time, and the result that it fills."""

    partition: Partition
    timestamp: int
    result: ListOffsetsPartitionResponse


async def _search(
    broker: Broker,
    response: ListOffsetsResponse,
    searches: list[_Lookup],
    committed: bool,
    version: int,
) -> ListOffsetsResponse:
    for partition, timestamp, result in searches:
        search = partition.at_time(None if timestamp == MAX_TIMESTAMP else timestamp)
        try:
            position = await broker.slow_batches.find(search)
            if position is None:
                _check_watermark(partition, version)
        except KafkaError as error:
            result.error_code = error.code
            continue
        if position is not None and not (
            committed and position.offset >= partition.last_stable_offset
        ):
            result.timestamp, result.offset = position.timestamp, position.offset
            result.leader_epoch = position.leader_epoch
    return response


def _repeated(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    counts = Counter(
        (topic.name, entry.partition_index)
        for topic in request.topics
        for entry in topic.partitions
    )
    return {partition for partition, count in counts.items() if count > 1}


def _offset(
    partition: Partition, entry: ListOffsetsPartition, committed: bool, version: int
) -> ListOffsetsPartitionResponse:
    """Return the result; for a time, the result of a search without a match."""
    timestamp = entry.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or version < _SINCE_VERSION.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp == LATEST:
        _check_watermark(partition, version)
        end = partition.last_stable_offset if committed else partition.watermark.offset
        return ListOffsetsPartitionResponse(offset=end, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        log = partition.log
        start = log.log_start_offset
        return ListOffsetsPartitionResponse(
            offset=start, leader_epoch=log.leader_epochs.epoch_of(start)
        )
    return ListOffsetsPartitionResponse()


def _log_end(broker: Broker, topic: str, index: int) -> ListOffsetsPartitionResponse:
    """Return the end of this broker's log, whatever its role."""
    partition = broker.partitions.get(topic, index)
    if partition is None or not partition.is_online:
        broker.partitions.leader(topic, index)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    log = partition.log
    end = log.log_end_offset
    epoch = log.leader_epochs.epoch_of(end - 1) if end > log.log_start_offset else -1
    return ListOffsetsPartitionResponse(offset=end, leader_epoch=epoch)


def _check_watermark(partition: Partition, version: int) -> None:
    """Raise OFFSET_NOT_AVAILABLE while the high watermark is below the start of the epoch."""
    if partition.watermark.offset < partition.epoch_start:
        is_known = version >= _OFFSET_NOT_AVAILABLE_SINCE
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
        )


def offset_for_leader_epoch(
    broker: Broker, context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpoch (23): returns the end of a leader epoch, to detect truncation.

    Source: KIP-101, KIP-279, KIP-320.
    """
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end(broker, topic.topic, entry) for entry in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end(broker: Broker, topic: str, entry: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.partitions.leader(topic, entry.partition)
        partition.check_epoch(entry.current_leader_epoch)
        epoch, end = partition.epoch_end(entry.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=entry.partition, error_code=error.code)
    return EpochEndOffset(partition=entry.partition, leader_epoch=epoch, end_offset=end)


APIS = (
    ServedApi(
        FetchRequest,
        fetch,
        done="Sessions, long poll, topic ids, read_committed, diverging epochs.",
        missing="Followers: no preferred replica.",
        in_place=True,
        cache_request=cache_request,
        refuse=refuse,
        counts_errors=True,
    ),
    ServedApi(
        ListOffsetsRequest,
        list_offsets,
        done="By timestamp and special position, both isolation levels.",
        missing="Tiered storage: timestamps -5 and -6 return no offset.",
        in_place=True,
    ),
    ServedApi(OffsetForLeaderEpochRequest, offset_for_leader_epoch, done="All."),
)
