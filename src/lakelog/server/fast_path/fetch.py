"""Fetch requests of one partition, one offset after the other, of a consumer or a follower.

They are answered from a template: at once, or when there are records, or at the deadline. Each
request of a follower states its position, which may commit records.
"""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.protocol.fetch import FetchRequest
from lakelog.replica.fetch_session import (
    SESSIONLESS_EPOCH,
    TOPIC_IDS_SINCE,
    FetchPlan,
    FetchSession,
    FetchTarget,
    PartitionKey,
    follower_of,
)
from lakelog.replica.followers import FollowerId
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.server.connections.request_sink import (
    ANSWERED,
    DECODE,
    DECODED,
    WAITING,
    CachedRequest,
    RepeatOutcome,
    RepeatResult,
)
from lakelog.server.fast_path.frames import FetchFrames, FetchKey
from lakelog.server.fast_path.partition_request import (
    CachedPartitionRequest,
    cache_partition_request,
)
from lakelog.server.fetches.pending import FetchReply, PendingFetch
from lakelog.server.fetches.reading import (
    NO_RECORDS,
    READ_COMMITTED,
    ZSTD_SINCE,
    PartitionRead,
    ReadResult,
    read,
)
from lakelog.server.requests.context import Context
from lakelog.storage.segments.handles import LogSlice
from lakelog.wire.template import Template


class CachedFetch(CachedPartitionRequest[FetchKey]):
    """One partition, fetched without a session or as the only partition of its session."""

    __slots__ = (
        "_bytes_max",
        "_bytes_min",
        "_committed",
        "_follower",
        "_frames",
        "_request",
        "_session",
        "_target",
        "_unchanged",
    )

    def __init__(
        self, broker: Broker, context: Context, key: FetchKey, partition_key: PartitionKey
    ) -> None:
        super().__init__(broker, context, key, partition_key)
        self._unchanged: Template | None = None
        self._session: FetchSession | None = None
        self._bytes_max = min(key.max_bytes, broker.fetch_bytes_max)
        self._bytes_min = min(key.min_bytes, self._bytes_max)
        self._committed = key.isolation_level == READ_COMMITTED
        self._follower = (
            None if key.replica_id < 0 else FollowerId(key.replica_id, key.replica_epoch)
        )

    def _make_templates(self) -> None:
        key = self.key
        self._session = self._broker.fetch_sessions.get(key.session_id)
        self._frames = FetchFrames(self.api, key, self._tail)
        self._request, self._unchanged = self._frames.request, self._frames.unchanged
        self._target = FetchTarget(
            key.topic,
            key.partition,
            0,
            key.partition_max_bytes,
            key.current_leader_epoch,
            key.last_fetched_epoch,
            key.log_start_offset,
        )

    def answer(self, view: memoryview, start: int, end: int, most: int) -> RepeatResult:
        """As `CachedRequest.answer`; one request at a time.

        If the partition raises an error, the request is decoded.
        """
        partition, size = self._partition, end - start
        # The response would overtake the responses to waiting requests: it bypasses the replies.
        if partition is None or self._connection.pending:
            return DECODED
        template = self._request
        if size != template.size:
            if self._unchanged is None or size != self._unchanged.size:
                return DECODED
            template = self._unchanged
        fields = template.unpack(view, start)
        if fields is None:
            return DECODED
        return self._answer(partition, size, *fields), 1, end

    def _answer(
        self,
        partition: Partition,
        size: int,
        correlation_id: int,
        epoch: int,
        offset: int | None = None,
    ) -> RepeatOutcome:
        """Answer with records, or wait for them; anything else has the request decoded.

        `size` is the request's, in bytes. Without an `offset`, the session's is used.
        """
        session, connection = self._session, self._connection
        if session is None:
            if epoch != SESSIONLESS_EPOCH or self.key.session_id:
                return DECODE
        elif (
            session.epoch != epoch
            or len(session.targets) != 1
            or self.partition_key not in session.targets
        ):
            return DECODE
        target = self._target_at(offset, session)
        result = read(
            partition,
            target,
            self._bytes_max,
            committed=self._committed,
            follower=self._follower,
            fetched_at=connection.last_active,
        )
        if not isinstance(result, LogSlice) or result.aborted or result.size < self._bytes_min:
            return self._wait(partition, size, correlation_id, target, result)
        # The session changes only now that the answer is certain: a request that is decoded after
        # all must find the session's epoch as it was (KIP-227).
        if session is not None:
            session.advance(connection.last_active)
            session.targets[self.partition_key] = target
        partition.fetched_bytes += result.size
        head = self._frames.head(correlation_id, partition, target, result.size)
        self._responses.send_slice(result, head, self._tail)
        return ANSWERED

    def _target_at(self, offset: int | None, session: FetchSession | None) -> FetchTarget:
        if offset is None:
            assert session is not None
            return session.targets[self.partition_key]
        key, target = self.key, self._target
        target.fetch_offset = offset
        if session is not None:  # another request may have changed the session's target
            target.max_bytes = key.partition_max_bytes
            target.current_leader_epoch = key.current_leader_epoch
        return target

    def _wait(
        self,
        partition: Partition,
        size: int,
        correlation_id: int,
        target: FetchTarget,
        result: ReadResult,
    ) -> RepeatOutcome:
        """Park the request, whose position is noted, if more records may answer it."""
        broker, key, connection, session = self._broker, self.key, self._connection, self._session
        if isinstance(result, KafkaError):
            return DECODE
        result.release()
        has_to_wait = not result.aborted if isinstance(result, LogSlice) else result is NO_RECORDS
        if not has_to_wait or min(key.min_bytes, key.max_bytes, key.max_wait_ms) <= 0:
            return DECODE
        now = connection.last_active
        if session is not None:
            session.advance(now)
            session.replace(self.partition_key, target)
        context = Context(connection, self.api, key.version, correlation_id, key.client_id)
        context.begun, context.size_bytes = now, size
        context.on_complete = broker.requests.on_late
        connection.expect(context)
        plan = FetchPlan([target], session, incremental=session is not None)
        frames = self._frames
        reply = TemplateReply(broker, context, plan, frames, correlation_id, self._committed)
        fetch = PendingFetch(
            broker, context, frames.message, plan, reply, now, self._follower, is_noted=True
        )
        fetch.park((partition.key,))
        return WAITING


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


def cache_request(
    broker: Broker, last: CachedRequest | None, context: Context, request: FetchRequest
) -> CachedRequest | None:
    """As `cache_partition_request`. A request without topics belongs to the last one's session
    (KIP-227)."""
    if request.topics or request.forgotten_topics_data:
        key = _key(context, request)
        if key is None:
            return None
    else:
        key = _key_of_session(broker, last, context, request)
        if key is None:
            return last
    name = "" if isinstance(key.topic, bytes) else key.topic
    partition_key = key.topic, key.partition
    return cache_partition_request(
        CachedFetch, broker, last, context, key, partition_key, name, key.rack_id
    )


def _key(context: Context, request: FetchRequest) -> FetchKey | None:
    topics, version = request.topics, context.version
    if (
        len(topics) != 1
        or len(topics[0].partitions) != 1
        or request.forgotten_topics_data
        or version < ZSTD_SINCE
        or request.replica_id >= 0  # only old followers name themselves so
    ):
        return None
    entry = topics[0].partitions[0]
    return FetchKey(
        context.client_id,
        version,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        topics[0].topic_id if version >= TOPIC_IDS_SINCE else topics[0].topic,
        entry.partition,
        entry.current_leader_epoch,
        entry.last_fetched_epoch,
        entry.log_start_offset,
        entry.partition_max_bytes,
        request.rack_id,
        request.replica_state.replica_id,
        request.replica_state.replica_epoch,
    )


def _key_of_session(
    broker: Broker, last: CachedRequest | None, context: Context, request: FetchRequest
) -> FetchKey | None:
    """Return the key of the request as if it named the session's only partition."""
    if isinstance(last, CachedFetch) and last.key.session_id == request.session_id:
        return last.key
    target = broker.fetch_sessions.only_target(request.session_id)
    is_follower = follower_of(request, context.version) is not None
    if target is None or is_follower or context.version < ZSTD_SINCE:
        return None
    return FetchKey(
        context.client_id,
        context.version,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        target.topic,
        target.partition,
        target.current_leader_epoch,
        target.last_fetched_epoch,
        -1,
        target.max_bytes,
        request.rack_id,
    )
