"""A learned fetch that waits for records, and is answered from the same templates."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.base.errors import KafkaError
from lakelog.replica.fetch_session import FetchPlan, FetchTarget
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.server.connections.reply import Part
from lakelog.server.fetches.pending import PendingFetch
from lakelog.server.fetches.reading import FollowerId, read_for_follower, read_one
from lakelog.server.repeats.fetch_frames import FetchFrames
from lakelog.server.requests.context import Context
from lakelog.storage.indexes.txn_index import AbortedTransaction
from lakelog.storage.preparation import NotReady
from lakelog.storage.segments.handles import LogSlice


class WaitingFetch(PendingFetch):
    """A fetch of one partition; the base class builds each response that no template covers."""

    __slots__ = ("_correlation_id", "_frames")

    def __init__(
        self,
        broker: Broker,
        context: Context,
        plan: FetchPlan,
        frames: FetchFrames,
        correlation_id: int,
        follower: FollowerId | None,
    ) -> None:
        """follower: that of the request, whose position was noted."""
        super().__init__(broker, context, frames.message, plan, follower)
        self._noted = True
        self._frames = frames
        self._correlation_id = correlation_id

    def try_complete(self) -> bool:
        """Answer if there are enough bytes; return whether the fetch leaves the purgatory."""
        answered = self._answer(self.bytes_min)
        return super().try_complete() if answered is None else answered

    def expire(self) -> None:
        """Answer with the bytes found so far, possibly none."""
        if not self._answer(0):
            super().expire()

    def _answer(self, at_least: int) -> bool | None:
        """Answer if there are `at_least` bytes, and return whether there were.

        Return None if no template covers the response.
        """
        (target,) = self._plan.targets
        try:
            partition, records, aborted = self._find(target)
        except NotReady as first:
            first.job.abandon()
            return None
        except KafkaError:
            return None
        size = 0 if records is None else records.size
        if records is not None and (aborted or size < at_least):
            records.release()
        if aborted or size < at_least:
            return None if aborted else False
        high_watermark, log_start = partition.watermark.offset, partition.log.log_start_offset
        if not self._plan.includes(target, 0, size, high_watermark, log_start):
            self._context.complete([self._frames.nothing(self._correlation_id)])
            return True
        partition.fetched_bytes += size
        parts: list[Part] = [self._frames.head(self._correlation_id, partition, target, size)]
        if records is not None:
            parts.append(records)
        parts.append(self._frames.tail)
        self._context.complete(parts)
        return True

    def _find(
        self, target: FetchTarget
    ) -> tuple[Partition, LogSlice | None, Sequence[AbortedTransaction]]:
        broker, follower, bytes_max = self._broker, self._follower, self._bytes_max
        if follower is None:
            return read_one(broker, target, bytes_max, committed=self._committed, min_one=True)
        return *read_for_follower(broker, follower, target, bytes_max, min_one=True), ()
