"""Fetch requests of one partition, one offset after the other.

They are answered from a template, at once or when there are records or it has become late.
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
)
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.server.dispatch import Context
from lakelog.server.handlers.fetch import READ_COMMITTED, ZSTD_SINCE, read_one
from lakelog.server.repeats.fetch_frames import FetchFrames, FetchKey
from lakelog.server.repeats.known import KnownRequest, learn_known
from lakelog.server.repeats.waiting_fetch import WaitingFetch
from lakelog.server.reply import Repeat
from lakelog.storage.checking import NotChecked
from lakelog.wire.template import Template


def learn(
    broker: Broker, last: Repeat | None, context: Context, request: FetchRequest
) -> Repeat | None:
    """As `learn_known`. A request without topics is of the session that the last one was of."""
    if request.topics or request.forgotten_topics_data:
        key = _key(context, request)
        if key is None:
            return None
    else:
        key = _key_of_session(broker, last, context, request)
        if key is None:
            return last
    name = "" if isinstance(key.topic, bytes) else key.topic
    place = key.topic, key.partition
    return learn_known(FetchRepeat, broker, last, context, key, place, name, key.rack_id)


def _key(context: Context, request: FetchRequest) -> FetchKey | None:
    topics, version = request.topics, context.version
    if (
        len(topics) != 1
        or len(topics[0].partitions) != 1
        or request.forgotten_topics_data
        or version < ZSTD_SINCE
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
    )


def _key_of_session(
    broker: Broker, last: Repeat | None, context: Context, request: FetchRequest
) -> FetchKey | None:
    """What the request would say if it named the session's only partition."""
    if isinstance(last, FetchRepeat) and last.key.session_id == request.session_id:
        return last.key
    target = broker.fetch_sessions.only_target(request.session_id)
    if target is None or context.version < ZSTD_SINCE:
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


class FetchRepeat(KnownRequest[FetchKey]):
    """One partition, fetched without a session or as the only one of its session."""

    __slots__ = ("_frames", "_request", "_target", "_unchanged")

    def __init__(
        self, broker: Broker, context: Context, key: FetchKey, place: PartitionKey
    ) -> None:
        super().__init__(broker, context, key, place)
        self._request: Template | None = None
        self._unchanged: Template | None = None

    def prepare(self) -> None:
        if self._request is not None:
            return
        key = self.key
        self._frames = FetchFrames(self.api, key, self._tail)
        self._request, self._unchanged = self._frames.request, self._frames.unchanged
        self._target = FetchTarget(
            key.topic,
            key.partition,
            0,
            key.partition_max_bytes,
            key.current_leader_epoch,
            key.last_fetched_epoch,
        )

    def answer(self, view: memoryview, start: int, end: int, most: int) -> tuple[int, int]:
        request, size = self._request, end - start
        if request is None or self._connection.is_waiting:
            return 0, start
        if size == request.size:
            found = request.unpack(view, start)
            taken = found is not None and self._read(size, *found)
            return self._taken(end) if taken else (0, start)
        unchanged = self._unchanged
        if unchanged is None or size != unchanged.size:
            return 0, start
        found = unchanged.unpack(view, start)
        taken = found is not None and self._read(size, found[0], found[1], None)
        return self._taken(end) if taken else (0, start)

    def _taken(self, end: int) -> tuple[int, int]:
        return (0 if self._connection.is_waiting else 1), end

    def _read(self, size: int, correlation_id: int, epoch: int, offset: int | None) -> bool:
        """Answers, now or later, if nothing is to be told but records.

        `size` is the request's. Without an `offset` it is read on from where the session is.
        """
        broker, key = self._broker, self.key
        session = None
        if key.session_id:
            session = broker.fetch_sessions.of_one(key.session_id, epoch, self.place)
        if session is None and (key.session_id or epoch != SESSIONLESS_EPOCH):
            return False
        target = self._target_at(offset, session)
        bytes_max = min(key.max_bytes, broker.fetch_bytes_max)
        committed = key.isolation_level == READ_COMMITTED
        try:
            partition, records, aborted = read_one(
                broker, target, bytes_max, committed=committed, min_one=True
            )
        except NotChecked as first:
            first.job.abandon()
            return False
        except KafkaError:
            return False
        if records is None:
            return self._wait(size, correlation_id, partition, target, session)
        if aborted or records.size < min(key.min_bytes, bytes_max):
            records.release()
            return not aborted and self._wait(size, correlation_id, partition, target, session)
        if session is not None:
            session.advance(self._connection.last_active)
            session.targets[self.place] = target
        partition.fetched_bytes += records.size
        head = self._frames.head(correlation_id, partition, target, records.size)
        self._connection.queue_slice(records, head, self._tail)
        return True

    def _target_at(self, offset: int | None, session: FetchSession | None) -> FetchTarget:
        if offset is None:
            assert session is not None
            return session.targets[self.place]
        key, target = self.key, self._target
        target.fetch_offset = offset
        target.max_bytes = key.partition_max_bytes
        target.current_leader_epoch = key.current_leader_epoch
        return target

    def _wait(
        self,
        size: int,
        correlation_id: int,
        partition: Partition,
        target: FetchTarget,
        session: FetchSession | None,
    ) -> bool:
        broker, key, connection = self._broker, self.key, self._connection
        if min(key.min_bytes, key.max_bytes, key.max_wait_ms) <= 0:
            return False
        if session is not None:
            session.advance(connection.last_active)
            session.replace(self.place, target)
        context = Context(connection, self.api, key.version, correlation_id, key.client_id)
        context.begun, context.size_bytes = connection.last_active, size
        context.on_complete = self._on_late
        connection.expect(context)
        plan = FetchPlan([target], session, incremental=session is not None)
        parked = broker.purgatory.park(
            WaitingFetch(broker, context, plan, self._frames, correlation_id),
            (partition.key,),
            connection.last_active + key.max_wait_ms / 1000,
        )
        context.on_abandon = lambda: broker.purgatory.cancel(parked)
        return True

    def _on_late(self, context: Context) -> None:
        requests = self._broker.requests
        took, peer = requests.monotonic() - context.begun, context.connection.peer_name
        requests.on_late(context.api, context, peer, took, context.size_bytes)
