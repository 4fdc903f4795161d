"""Encodes the response to a Fetch request that was decoded."""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.protocol.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from lakelog.replica.divergence import DivergedLog
from lakelog.replica.fetch_session import FetchPlan, topic_fields
from lakelog.replica.partition import Partition
from lakelog.replica.role import current_leader
from lakelog.server.broker import Broker
from lakelog.server.fetches.reading import NO_RECORDS, PartitionRead, ReadWait
from lakelog.server.requests.context import Context
from lakelog.storage.segments.handles import LogSlice


class FetchReply:
    """The reply to one request.

    Args:
        committed: whether the request is `read_committed`.
    """

    __slots__ = ("_broker", "_committed", "_context", "_plan")

    def __init__(
        self, broker: Broker, context: Context, plan: FetchPlan, *, committed: bool
    ) -> None:
        self._broker = broker
        self._context = context
        self._plan = plan
        self._committed = committed

    def send(self, reads: list[PartitionRead]) -> None:
        """Complete the reply; the connection then owns the slices in `reads`.

        A session omits partitions without changes.
        """
        plan, context = self._plan, self._context
        in_session = plan.session is not None
        topics: list[FetchableTopicResponse] = []
        last: str | bytes | None = None
        leaders = []
        for target, partition, result in reads:
            if isinstance(result, KafkaError):
                data = self._failure(target.partition, partition, result)
                leaders.append(data.current_leader)
            else:
                assert partition is not None
                data = self._success(partition, result)
            if in_session:
                has_failed = isinstance(result, KafkaError)
                size = result.size if isinstance(result, LogSlice) else 0
                watermark, log_start = data.high_watermark, data.log_start_offset
                if not plan.includes(target, has_failed, size, watermark, log_start):
                    continue
            if target.topic != last:
                last = target.topic
                name, topic_id = topic_fields(last)
                topic = FetchableTopicResponse(topic=name, topic_id=topic_id)
                topics.append(topic)
            topic.partitions.append(data)
        response = FetchResponse(session_id=plan.session_id, responses=topics)
        if leaders:
            response.node_endpoints = self._broker.endpoints_of(context.connection, leaders)
        context.reply(response)

    def _failure(self, index: int, partition: Partition | None, error: KafkaError) -> PartitionData:
        if isinstance(error, DivergedLog):
            assert partition is not None
            data = self._success(partition, NO_RECORDS)
            data.diverging_epoch = DivergingEpoch(epoch=error.epoch, end_offset=error.end_offset)
            return data
        self._context.was_rejected = True
        self._broker.requests.errors["Fetch", error.code] += 1
        return PartitionData(
            partition_index=index,
            error_code=error.code,
            high_watermark=-1,
            current_leader=current_leader(error),
            aborted_transactions=[] if self._committed else None,
            records=b"",
        )

    def _success(self, partition: Partition, result: LogSlice | ReadWait) -> PartitionData:
        aborted: list[AbortedTransaction] | None = [] if self._committed else None
        records: LogSlice | bytes = b""
        if isinstance(result, LogSlice):
            records = result
            partition.fetched_bytes += result.size
            if aborted is not None:
                aborted.extend(
                    AbortedTransaction(
                        producer_id=entry.producer_id, first_offset=entry.first_offset
                    )
                    for entry in result.aborted
                )
        return PartitionData(
            partition_index=partition.index,
            high_watermark=partition.watermark.offset,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )
