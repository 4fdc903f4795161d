"""Encodes the response to a cached Fetch that has waited, from the templates of the request."""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.replica.fetch_session import FetchPlan
from lakelog.server.broker import Broker
from lakelog.server.fast_path.fetch_frames import FetchFrames
from lakelog.server.fetches.reading import PartitionRead
from lakelog.server.fetches.response import FetchReply
from lakelog.server.requests.context import Context
from lakelog.storage.segments.handles import LogSlice


class TemplateReply(FetchReply):
    """The reply to a cached request that waited; the base class encodes errors and aborts."""

    __slots__ = ("_correlation_id", "_frames")

    def __init__(
        self,
        broker: Broker,
        context: Context,
        plan: FetchPlan,
        frames: FetchFrames,
        correlation_id: int,
        committed: bool,
    ) -> None:
        super().__init__(broker, context, plan, committed=committed)
        self._frames = frames
        self._correlation_id = correlation_id

    def send(self, reads: list[PartitionRead]) -> None:
        """As `FetchReply.send`, for one partition."""
        ((target, partition, result),) = reads
        if isinstance(result, KafkaError) or (isinstance(result, LogSlice) and result.aborted):
            super().send(reads)
            return
        assert partition is not None
        frames = self._frames
        records: list[LogSlice] = [result] if isinstance(result, LogSlice) else []
        size = records[0].size if records else 0
        watermark, log_start = partition.watermark.offset, partition.log.log_start_offset
        if self._plan.includes(target, False, size, watermark, log_start):
            partition.fetched_bytes += size
            head = frames.head(self._correlation_id, partition, target, size)
            self._context.complete([head, *records, frames.tail])
        else:
            self._context.complete([frames.nothing(self._correlation_id)])
