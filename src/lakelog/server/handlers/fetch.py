"""Fetch (1): record batches as they are stored, sent from the segment files.

A fetch is answered when it has found `min_bytes`, when a partition has an error, or after
`max_wait_ms`; until then it is parked on its partitions. The first partition with data returns at
least one whole batch, however large, so that a consumer can always go on (KIP-74).
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from lakelog.replica.fetch_session import FetchPlan, FetchTarget, topic_fields
from lakelog.server.broker import Broker
from lakelog.server.dispatch import DEFERRED, Context, Deferred
from lakelog.storage.handles import LogSlice

_READ_COMMITTED = 1
_ZSTD_SINCE = 10


def handle(broker: Broker, context: Context, request: FetchRequest) -> FetchResponse | Deferred:
    now = broker.clock.monotonic()
    try:
        plan = broker.fetch_sessions.begin(request, context.version, now)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    fetch = PendingFetch(broker, context, request, plan)
    if request.max_wait_ms <= 0 or not plan.targets:
        fetch.expire()
    elif not fetch.try_complete():
        deadline = now + request.max_wait_ms / 1000
        parked = broker.purgatory.park(fetch, fetch.keys(), deadline)
        context.on_abandon(lambda: broker.purgatory.cancel(parked))
    return DEFERRED


class PendingFetch:
    """One fetch request until it is answered."""

    __slots__ = (
        "_broker",
        "_bytes_max",
        "_bytes_min",
        "_committed",
        "_context",
        "_plan",
    )

    def __init__(
        self, broker: Broker, context: Context, request: FetchRequest, plan: FetchPlan
    ) -> None:
        self._broker = broker
        self._context = context
        self._plan = plan
        self._bytes_max = min(request.max_bytes, broker.fetch_bytes_max)
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._committed = request.isolation_level == _READ_COMMITTED

    def keys(self) -> list[tuple[bytes, int]]:
        """What an append must touch to be of interest to this fetch."""
        find = self._broker.partitions.get
        found = (find(target.topic, target.partition) for target in self._plan.targets)
        return list(dict.fromkeys(partition.key for partition in found if partition is not None))

    def try_complete(self) -> bool:
        results, size, failed = self._read()
        if size < self._bytes_min and not failed:
            for _, data in results:
                _release(data)
            return False
        self._answer(results)
        return True

    def expire(self) -> None:
        results, _, _ = self._read()
        self._answer(results)

    def _read(self) -> tuple[list[tuple[FetchTarget, PartitionData]], int, bool]:
        """The result of each target, the bytes found, and whether any of them is an error."""
        results = []
        size = 0
        failed = False
        for target in self._plan.targets:
            try:
                data = self._read_one(target, self._bytes_max - size, min_one=not size)
                size += len(data.records) if data.records is not None else 0
            except KafkaError as error:
                failed = True
                data = PartitionData(
                    partition_index=target.partition,
                    error_code=error.code,
                    high_watermark=-1,
                    aborted_transactions=[] if self._committed else None,
                    records=b"",
                )
            results.append((target, data))
        return results, size, failed

    def _read_one(self, target: FetchTarget, bytes_left: int, *, min_one: bool) -> PartitionData:
        partition = self._broker.partitions.find(target.topic, target.partition)
        partition.check_epoch(target.current_leader_epoch)
        log = partition.log
        if self._context.version < _ZSTD_SINCE and log.config.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        found = None
        if bytes_left > 0:
            found = partition.read(
                target.fetch_offset, min(target.max_bytes, bytes_left), min_one=min_one
            )
        return PartitionData(
            partition_index=target.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._committed else None,
            records=b"" if found is None else found,
        )

    def _answer(self, results: list[tuple[FetchTarget, PartitionData]]) -> None:
        responses: list[FetchableTopicResponse] = []
        last: str | bytes | None = None
        for target, data in results:
            size = 0 if data.records is None else len(data.records)
            if not self._plan.includes(
                target, data.error_code, size, data.high_watermark, data.log_start_offset
            ):
                continue
            if target.topic != last:
                last = target.topic
                name, topic_id = topic_fields(target.topic)
                responses.append(FetchableTopicResponse(topic=name, topic_id=topic_id))
            responses[-1].partitions.append(data)
        self._context.reply(FetchResponse(session_id=self._plan.session_id, responses=responses))


def _release(data: PartitionData) -> None:
    if isinstance(data.records, LogSlice):
        data.records.release()
