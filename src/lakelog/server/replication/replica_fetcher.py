"""Copies partitions from one leader: one request at a time, for as long as there are partitions.

The manager has one fetcher for each leader.

Only records on the device may be reported. With `durability=fsync` the leader acknowledges a record
when all in-sync replicas have reported it: a position that is reported before the flush would
acknowledge records that a power failure of all replicas removes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import FailingTask
from lakelog.protocol.fetch import (
    FetchRequest,
    FetchResponse,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lakelog.records.batch import CorruptRecord
from lakelog.replica.partition import Partition
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Clock, Tasks, complete, pause
from lakelog.server.event_log import FetchFailures
from lakelog.server.inter_broker.exchange import PeerError
from lakelog.server.replication.leader_session import REST_S, WAIT_MS, Fetched, LeaderSession
from lakelog.server.upkeep.stored_checks import StoredChecks
from lakelog.storage.preparation import NotReady
from lakelog.wire.schema import Message

_logger = logging.getLogger(__name__)


def being_flushed(partitions: Iterable[Partition]) -> list[Partition]:
    """Return the partitions whose logs are not as durable as configured yet.

    A log that has failed, or that this broker does not copy any more, is not among them.
    """
    return [partition for partition in partitions if _has_to_wait(partition)]


async def flushed(
    waiting: Sequence[Partition], purgatory: Purgatory, tasks: Tasks, deadline: float
) -> None:
    """Wait until these logs, of `being_flushed`, are as durable as configured, or the deadline.

    deadline: on the monotonic clock, in seconds.
    """
    wait = _FlushWait(waiting, tasks.future())
    keys = dict.fromkeys(partition.key for partition in waiting)
    parked = purgatory.park(wait, keys, deadline)
    try:
        await wait.done
    finally:  # a cancelled task must not leave its wait behind
        purgatory.cancel(parked)


def _has_to_wait(partition: Partition) -> bool:
    return (
        not partition.watermark.is_written and partition.is_online and not partition.role.is_leader
    )


class _FlushWait:
    """A `Wait` of one fetcher for the flushes of some logs."""

    __slots__ = ("_partitions", "done")

    def __init__(self, partitions: Sequence[Partition], done: asyncio.Future[None]) -> None:
        self._partitions = partitions
        self.done = done

    def try_complete(self) -> bool:
        self._partitions = [partition for partition in self._partitions if _has_to_wait(partition)]
        if not self._partitions:
            self.expire()
        return not self._partitions

    def expire(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


_PATIENCE_S = WAIT_MS / 1000 + 10.0
_EARLIEST = -2
_FLUSH_PATIENCE_S = 0.5
"""How long the next fetch waits for flushes. A partition that takes longer is left out."""
_MIXED_PATIENCE_S = 0.005
"""The same if other partitions of the leader need no flush, and have no reason to wait."""


class Leader(Protocol):
    """The connection to the leader."""

    async def request(self, message: Message, *, timeout_s: float) -> Message:
        """Return the response. Raises `PeerError`."""
        ...


class ReplicaFetcher:
    """The fetches from one leader.

    Args:
        peer: returns the connection to the leader, or None while it is not registered.
        broker_epoch: returns the epoch of this broker's registration.
    """

    def __init__(
        self,
        node_id: int,
        leader_id: int,
        peer: Callable[[], Leader | None],
        broker_epoch: Callable[[], int],
        checks: StoredChecks,
        purgatory: Purgatory,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self.session = LeaderSession(node_id)
        self._leader_id = leader_id
        self._peer = peer
        self._broker_epoch = broker_epoch
        self._checks = checks
        self._purgatory = purgatory
        self._clock = clock
        self._tasks = tasks
        self._failures = FetchFailures(leader_id, clock)
        self._task = FailingTask(_logger, f"copying from broker {leader_id}")
        self._running: Any = None
        self._pause: Any = None

    def add(self, partition: Partition) -> None:
        """Copy this partition, too."""
        self.session.add(partition)
        if self._running is None:
            self._running = self._tasks.spawn(self._run(), name=f"fetch from {self._leader_id}")
        # A new partition must not wait for the end of a rest that other partitions caused: its
        # producers with acks=all wait with it.
        elif self._pause is not None:
            complete(self._pause)

    def remove(self, partition: Partition) -> None:
        """Stop copying this partition; a response under way is ignored for it."""
        self.session.remove(partition)
        self._failures.forget(partition)

    def stop(self) -> None:
        """Stop copying all partitions."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    async def _run(self) -> None:
        while self.session:
            try:
                await self._fetch()
            except Exception as bug:  # noqa: BLE001 - no other task copies these partitions
                self._task.failed(bug)
                self.session.lose_session()
                await self._rest()
            else:
                self._task.succeeded()
        self._running = None

    async def _fetch(self) -> None:
        # Looked up for each request: the leader may have started again, with another epoch and
        # other connections.
        peer = self._peer()
        # Only with a peer: the session counts the partitions of each request as sent.
        request = self._next_request() if peer is not None else None
        if peer is None or request is None:
            await self._rest()
            return
        try:
            response = await peer.request(request, timeout_s=_PATIENCE_S)
        except PeerError:
            # Whether the leader has seen the request is unknown, and the epochs of a session allow
            # no gap (KIP-227).
            self.session.lose_session()
            await self._rest()
            return
        assert isinstance(response, FetchResponse)
        await self._apply_all(peer, response)

    def _next_request(self) -> FetchRequest | None:
        return self.session.request(self._broker_epoch(), self._clock.monotonic())

    async def _rest(self) -> None:
        self._pause = self._tasks.future()
        await pause(self._tasks, REST_S, self._pause)

    async def _apply_all(self, peer: Leader, response: FetchResponse) -> None:
        """Apply a response, and wait until the next request can report it.

        The leader holds a request without new records back. If it left out a partition that is
        being flushed, producers would wait for the end of that request.
        """
        news = []
        # One partition after the other: each may suspend for a job, and the next request must
        # report all of them.
        for fetched in self.session.on_response(response):
            await self._apply(peer, fetched)
            news.append(fetched.partition)
        waiting = being_flushed(news)
        if not waiting:
            return
        is_mixed = self.session.are_others_unflushed(waiting)
        patience_s = _MIXED_PATIENCE_S if is_mixed else _FLUSH_PATIENCE_S
        deadline = self._clock.monotonic() + patience_s
        await flushed(waiting, self._purgatory, self._tasks, deadline)

    async def _apply(self, peer: Leader, fetched: Fetched) -> None:
        """Append the records, or follow the leader's correction; a failed partition rests."""
        partition, position, data = fetched
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._restart(peer, partition, position.leader_epoch)
            elif data.error_code:
                raise KafkaError(ErrorCode(data.error_code))
            elif data.diverging_epoch.end_offset >= 0:
                await self._ready(partition, partial(_truncate, fetched))
            else:
                now_ms = self._clock.wall_ms()
                await self._ready(partition, partial(_append, fetched, now_ms))
        # Only this partition rests. An error of one partition must not hold back the others of the
        # same leader.
        except (KafkaError, CorruptRecord, PeerError) as error:
            self.session.rest(partition, self._clock.monotonic())
            self._failures.failed(partition, error)
        except Exception as bug:  # noqa: BLE001 - the same for a bug that one partition shows
            self.session.rest(partition, self._clock.monotonic())
            self._failures.failed(partition, bug, is_bug=True)
        else:
            self._failures.succeeded(partition)

    async def _ready(self, partition: Partition, use: Callable[[], object]) -> None:
        """Call `use` until it raises no `NotReady`, running each job in a thread.

        No other part of this broker appends to the partition meanwhile, unless its role changes:
        `use` then does nothing.
        """
        while True:
            try:
                use()
                return
            except NotReady as first:
                job = first.job
            await self._checks.run_one(partition, job)

    async def _restart(self, peer: Leader, partition: Partition, leader_epoch: int) -> None:
        """Begin again at the start of the leader's log, which lies beyond the end of this one."""
        entry = ListOffsetsPartition(
            partition_index=partition.index,
            # The epoch of the fetch: an answer of the same broker as a leader in another epoch
            # could name a start below records that were committed since.
            current_leader_epoch=leader_epoch,
            timestamp=_EARLIEST,
        )
        topic = ListOffsetsTopic(name=partition.topic, partitions=[entry])
        response = await peer.request(
            ListOffsetsRequest(replica_id=-1, topics=[topic]), timeout_s=_PATIENCE_S
        )
        assert isinstance(response, ListOffsetsResponse)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        partition.restart_at(answer.offset, leader_epoch)


def _append(fetched: Fetched, now_ms: int) -> None:
    partition, position, data = fetched
    partition.append_fetched(
        memoryview(data.records or b""),
        position.leader_epoch,
        data.high_watermark,
        data.log_start_offset,
        now_ms,
    )


def _truncate(fetched: Fetched) -> None:
    partition, position, data = fetched
    diverging = data.diverging_epoch
    partition.truncate(diverging.epoch, diverging.end_offset, position.leader_epoch)


class ReplicaFetcherManager:
    """One fetcher for each leader that this broker follows.

    Args:
        make_fetcher: returns a new fetcher from the leader with a node id.
    """

    def __init__(self, make_fetcher: Callable[[int], ReplicaFetcher]) -> None:
        self._make_fetcher = make_fetcher
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._by_partition: dict[Partition, ReplicaFetcher] = {}
        self._stopped = False

    def note_role(self, partition: Partition) -> None:
        """Follow a change of the partition's role; a retired partition has none."""
        fetcher = self._by_partition.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)
        role = partition.role
        is_copied = partition.is_online and partition.failed_in is None
        if self._stopped or role.is_leader or role.leader_id < 0 or not is_copied:
            return
        fetcher = self._fetchers.get(role.leader_id)
        if fetcher is None:
            fetcher = self._fetchers[role.leader_id] = self._make_fetcher(role.leader_id)
        self._by_partition[partition] = fetcher
        fetcher.add(partition)

    def stop(self) -> None:
        """Copy nothing any more."""
        self._stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()
