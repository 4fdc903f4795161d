"""Fetch requests of one partition, one offset after the other.

They are answered from a template: at once, or when there are records, or at the deadline.
"""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.replica.fetch_session import (
    SESSIONLESS_EPOCH,
    FetchPlan,
    FetchSession,
    FetchTarget,
    PartitionKey,
)
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.server.fetches.reading import READ_COMMITTED, FollowerId, note_position, read_of
from lakelog.server.repeats.fetch_frames import FetchFrames, FetchKey
from lakelog.server.repeats.known import KnownRequest
from lakelog.server.repeats.waiting_fetch import WaitingFetch
from lakelog.server.requests.context import Context
from lakelog.storage.preparation import NotReady
from lakelog.wire.template import Template


class FetchRepeat(KnownRequest[FetchKey]):
    """One partition, fetched without a session or as the only partition of its session."""

    __slots__ = (
        "_bytes_max",
        "_bytes_min",
        "_committed",
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

    def answer(self, view: memoryview, start: int, end: int, most: int) -> tuple[int, int]:
        """As `Repeat.answer`; one request at a time.

        If the partition raises an error, the request is decoded.
        """
        partition, size = self._partition, end - start
        # The response would overtake the responses to waiting requests: it bypasses the replies.
        if partition is None or self._connection.is_waiting:
            return 0, start
        request = self._request
        if size == request.size:
            fields = request.unpack(view, start)
            answered = None if fields is None else self._read(partition, size, *fields)
        else:
            unchanged = self._unchanged
            if unchanged is None or size != unchanged.size:
                return 0, start
            fields = unchanged.unpack(view, start)
            answered = (
                None if fields is None else self._read(partition, size, fields[0], fields[1], None)
            )
        return (0, start) if answered is None else (answered, end)

    def _read(
        self,
        partition: Partition,
        size: int,
        correlation_id: int,
        epoch: int,
        offset: int | None,
    ) -> int | None:
        """Answer with records; return 1, or -1 if the request waits for them.

        Return None if the response has anything else, an error for example: the request is then
        decoded. `size` is the request's, in bytes. Without an `offset`, the session's is used.
        """
        session = self._session
        if session is None:
            if epoch != SESSIONLESS_EPOCH or self.key.session_id:
                return None
        elif (
            session.epoch != epoch
            or len(session.targets) != 1
            or self.partition_key not in session.targets
        ):
            return None
        target = self._target_at(offset, session)
        try:
            records, aborted = read_of(
                partition, target, self._bytes_max, committed=self._committed, min_one=True
            )
        except NotReady as first:
            # The decoded request meets the same error, and begins a job of its own.
            first.job.abandon()
            return None
        except KafkaError:
            return None
        if records is None:
            return self._wait(size, correlation_id, partition, target, session)
        size_found = records.size
        if aborted or size_found < self._bytes_min:
            records.release()
            return None if aborted else self._wait(size, correlation_id, partition, target, session)
        connection = self._connection
        # The session changes only now that the answer is certain: a request that is decoded after
        # all must find the session's epoch as it was (KIP-227).
        if session is not None:
            session.advance(connection.last_active)
            session.targets[self.partition_key] = target
        partition.fetched_bytes += size_found
        head = self._frames.head(correlation_id, partition, target, size_found)
        if records.is_resident:
            self._responses.send_slice(records, head, self._tail)
        else:
            self._responses.queue_slice(records, head, self._tail)
        return 1

    def _target_at(self, offset: int | None, session: FetchSession | None) -> FetchTarget:
        if offset is None:
            assert session is not None
            return session.targets[self.partition_key]
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
        follower: FollowerId | None = None,
    ) -> int | None:
        """Park the request; return -1. None as `_read`.

        follower: that of the request; its position is noted.
        """
        broker, key, connection = self._broker, self.key, self._connection
        if min(key.min_bytes, key.max_bytes, key.max_wait_ms) <= 0:
            return None
        if session is not None:
            session.advance(connection.last_active)
            session.replace(self.partition_key, target)
        if follower is not None:
            note_position(partition, follower, target, connection.last_active)
        context = Context(connection, self.api, key.version, correlation_id, key.client_id)
        context.begun, context.size_bytes = connection.last_active, size
        context.on_complete = self._on_late
        connection.expect(context)
        plan = FetchPlan([target], session, incremental=session is not None)
        parked = broker.purgatory.park(
            WaitingFetch(broker, context, plan, self._frames, correlation_id, follower),
            (partition.key,),
            connection.last_active + key.max_wait_ms / 1000,
        )
        context.on_abandon = lambda: broker.purgatory.cancel(parked)
        return -1

    def _on_late(self, context: Context) -> None:
        requests = self._broker.requests
        took, peer = requests.monotonic() - context.begun, context.connection.session.peer_name
        requests.on_late(context.api, context, peer, took, context.size_bytes)
