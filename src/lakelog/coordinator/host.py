"""Runs the shards of the partitions that this broker coordinates.

The host loads shards, appends their records, calls them at their deadlines and unloads them. A
shard belongs to the leader epoch in which it was loaded, and so do its appends. Each partition has
at most one append in flight. Decisions made meanwhile wait and share the next batch, so a thousand
commits need one append. Records are replayed, and replies sent, in the order of the decisions.

The host reports a rejected append to the decision's `failed` callback. A record that cannot be
encoded fails before it is queued, so it does not block other decisions. If the outcome of an append
is unknown, the host drops the shard and reloads it from the log: memory never differs from the log.

No other part of a coordinator waits; this one does through `Tasks`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.base.shortage import OutOfRoomError
from lakelog.coordinator.hosted import Encoded, Hosted
from lakelog.coordinator.log_replay import replay_log
from lakelog.coordinator.partitioning import partition_for
from lakelog.coordinator.reloads import UNREADABLE, Reloads
from lakelog.coordinator.shard import (
    NOT_APPENDED,
    Now,
    PartitionLogs,
    Result,
    Shard,
    coordinator_code,
)
from lakelog.records.builder import BatchBuilder
from lakelog.runtime.api import Clock, Tasks
from lakelog.wire.errors import WireError

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard[Any])


class TopicSizes(Protocol):
    """The current topics of the broker's metadata."""

    def partition_count(self, name: str) -> int:
        """Return the number of partitions, 0 if the topic does not exist."""
        ...


class ShardHost(Generic[S]):
    """The shards of one internal topic.

    Args:
        topic: name of the topic, for log messages.
        new_shard: returns an empty shard for a partition, given its number and leader epoch.
        topics: the current topics; the topic's partition count decides where a key belongs, because
            the configuration may have changed since the topic was created.
        partitions: number of partitions until the topic exists.
        empty_key_code: error code for a request with an empty key.
        batch_bytes_max: decisions share a batch up to this size; a larger decision has a batch of
            its own.
        codec: compression of the batches.
    """

    def __init__(
        self,
        topic: str,
        logs: PartitionLogs,
        clock: Clock,
        tasks: Tasks,
        new_shard: Callable[[int, int], S],
        topics: TopicSizes,
        partitions: int,
        *,
        empty_key_code: ErrorCode,
        batch_bytes_max: int,
        codec: int = 0,
    ) -> None:
        self._topic = topic
        self._logs = logs
        self._clock = clock
        self._tasks = tasks
        self._new_shard = new_shard
        self._topics = topics
        self._partitions_default = partitions
        self._empty_key_code = empty_key_code
        self._batch_bytes_max = batch_bytes_max
        self._codec = codec
        self._hosted: dict[int, Hosted[S]] = {}
        self._writers: dict[int, Any] = {}
        self._reloads = Reloads(topic, self.load, tasks)

    @property
    def partitions(self) -> list[int]:
        """Partitions that are loaded or being loaded."""
        return sorted(self._hosted)

    @property
    def loading(self) -> list[int]:
        """Partitions that have not been replayed to their end."""
        return [partition for partition, hosted in self._hosted.items() if not hosted.active]

    def active_shards(self) -> list[S]:
        """Return the shards that have been replayed to their end."""
        return [hosted.shard for hosted in self._hosted.values() if hosted.active]

    def partition_for(self, key: str) -> int:
        """Return the partition that stores `key`: a group id or a transactional id."""
        count = self._topics.partition_count(self._topic) or self._partitions_default
        return partition_for(key, count)

    def shard(self, partition: int) -> S:
        """Return the shard of a partition.

        Raises `KafkaError(NOT_COORDINATOR)`, or `KafkaError(COORDINATOR_LOAD_IN_PROGRESS)` until
        the partition has been replayed.
        """
        return self._active(partition).shard

    def shard_of(self, key: str, *, allows_empty: bool = False) -> S:
        """Return the shard that coordinates `key`.

        Raises as `shard` does, or `KafkaError(empty_key_code)` for an empty key.
        """
        if not key and not allows_empty:
            raise KafkaError(self._empty_key_code)
        return self._active(self.partition_for(key)).shard

    def _active(self, partition: int) -> Hosted[S]:
        hosted = self._hosted.get(partition)
        if hosted is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not hosted.active:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return hosted

    def submit(
        self,
        key: str,
        decision: Callable[[S, Now], Result[Any]],
        refuse: Callable[[ErrorCode], None],
        *,
        allows_empty: bool = False,
    ) -> None:
        """Call `decision` with the shard of `key`, and write its result.

        Args:
            refuse: called instead of raising, with an error code for the client.
            allows_empty: whether an empty key is valid.
        """
        if not key and not allows_empty:
            refuse(self._empty_key_code)
            return
        try:
            self.decide(self.partition_for(key), decision)
        except KafkaError as error:
            refuse(coordinator_code(error.code))

    def decide(self, partition: int, decision: Callable[[S, Now], Result[Any]]) -> None:
        """Call `decision` with the partition's shard, and write its result. Raises as `shard`."""
        hosted, now = self._active(partition), self.now()
        self._accept(hosted, decision(hosted.shard, now))
        self._arm(hosted, now)

    def now(self) -> Now:
        return Now(self._clock.wall_ms(), int(self._clock.monotonic() * 1000))

    # Loading and unloading

    def leader_epoch(self, partition: int) -> int | None:
        """Return the leader epoch for which a partition is loaded or being loaded, if it is."""
        hosted = self._hosted.get(partition)
        return None if hosted is None else hosted.leader_epoch

    async def load(self, partition: int, leader_epoch: int) -> None:
        """Replay the partition and begin to serve it in this leader epoch.

        Returns at once if it is hosted in this epoch, and unloads a shard of another one. Raises
        `KafkaError`, `OSError`, `CorruptRecord` or `WireError` if the epoch is over or the log
        cannot be read. The partition is then not hosted.
        """
        log = self._logs.open(partition, leader_epoch)
        if self.leader_epoch(partition) == leader_epoch:
            return
        self.unload(partition)
        shard = self._new_shard(partition, leader_epoch)
        hosted = self._hosted[partition] = Hosted(partition, leader_epoch, log, shard)
        try:
            # An append of an earlier shard may be in the log, and must be replayed then.
            if (writer := self._writers.get(partition)) is not None:
                await writer
            await replay_log(
                log, self._tasks, self._topic, partition, shard, lambda: hosted.dropped
            )
        except UNREADABLE:
            if hosted.dropped:
                return
            self._drop(hosted, ErrorCode.NOT_COORDINATOR)
            raise
        if hosted.dropped:
            return
        hosted.active = True
        now = self.now()
        for result in shard.loaded(now):
            self._accept(hosted, result)
        self._arm(hosted, now)

    def unload(self, partition: int) -> None:
        """Stop at once, and answer all waiting requests `NOT_COORDINATOR`."""
        self._reloads.cancel(partition)
        hosted = self._hosted.get(partition)
        if hosted is not None:
            self._drop(hosted, ErrorCode.NOT_COORDINATOR)

    def close(self) -> None:
        """Unload all partitions, and load none again."""
        for partition in self.partitions:
            self.unload(partition)
        self._reloads.cancel_all()

    def _drop(self, hosted: Hosted[S], code: ErrorCode) -> None:
        hosted.dropped = True
        hosted.active = False
        del self._hosted[hosted.partition]
        if hosted.timer is not None:
            hosted.timer.cancel()
        hosted.shard.unloaded(code)
        waiting = [result for result, _ in hosted.queue]
        hosted.queue.clear()
        self._fail(hosted, waiting, code)

    # Writing

    def _accept(self, hosted: Hosted[S], result: Result[Any] | None) -> None:
        while result is not None and not result.records and result.marker is None:
            result = result.committed(self.now()) if result.committed is not None else None
        if result is None:
            return
        assert result.marker is None or not (result.records or result.producer)
        if hosted.dropped:
            self._fail(hosted, [result], ErrorCode.NOT_COORDINATOR)
            return
        try:
            encoded = [hosted.shard.encode(record) for record in result.records]
        except WireError as error:
            logger.error(
                "%s-%d: cannot encode a record: %s",
                self._topic,
                hosted.partition,
                error,
                extra=event(
                    "coordinator_record_refused", topic=self._topic, partition=hosted.partition
                ),
            )
            self._fail(hosted, [result], ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        hosted.queue.append((result, encoded))
        if not hosted.writing:
            # A second writer could append decisions in another order than they are replayed in.
            assert hosted.partition not in self._writers
            hosted.writing = True
            name = f"write {self._topic}-{hosted.partition}"
            self._writers[hosted.partition] = self._tasks.spawn(self._write(hosted), name=name)

    async def _write(self, hosted: Hosted[S]) -> None:
        """Append decisions until the queue is empty; a dropped shard gets no more."""
        try:
            while hosted.queue:
                results, records = hosted.take_batch(self._batch_bytes_max)
                try:
                    await self._append(hosted, results, records)
                except Exception:
                    logger.exception(
                        "%s-%d: unexpected error while writing decisions",
                        self._topic,
                        hosted.partition,
                        extra=event(
                            "coordinator_failed", topic=self._topic, partition=hosted.partition
                        ),
                    )
                    self._not_committed(hosted, results, ErrorCode.UNKNOWN_SERVER_ERROR)
                self._arm(hosted, self.now())
        finally:
            hosted.writing = False
            del self._writers[hosted.partition]

    def _batch(self, producer: tuple[int, int] | None, records: list[Encoded]) -> bytearray:
        builder = BatchBuilder(self._codec)
        now_ms = self._clock.wall_ms()
        for key, value in records:
            builder.append(now_ms, key, value)
        return builder.build(*(producer or ()), is_transactional=producer is not None)

    async def _append(
        self, hosted: Hosted[S], results: list[Result[Any]], records: list[Encoded]
    ) -> None:
        """Append, replay and report decisions.

        `results` keeps the decisions that have not been reported.
        """
        producer, marker = results[0].producer, results[0].marker
        try:
            if marker is not None:
                offset = await hosted.log.append_marker(marker)
            else:
                batch = self._batch(producer, records)
                offset = await hosted.log.append(batch)
        except OutOfRoomError as error:
            self._fail(hosted, results, coordinator_code(error.code))
            return
        except (KafkaError, OSError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
            logger.warning(
                "append to %s-%d: %s",
                self._topic,
                hosted.partition,
                error,
                extra=event(
                    "coordinator_append_failed", topic=self._topic, partition=hosted.partition
                ),
            )
            self._not_committed(hosted, results, code)
            return
        if hosted.dropped:
            self._fail(hosted, results, ErrorCode.NOT_COORDINATOR)
            return
        assert offset > hosted.offset_last, "decisions are replayed in the order of the log"
        hosted.offset_last = offset
        now = self.now()
        results.reverse()
        while results:
            _replay(hosted.shard, results[-1])
            result = results.pop()
            if result.committed is not None:
                self._accept(hosted, result.committed(now))

    def _not_committed(
        self, hosted: Hosted[S], results: list[Result[Any]], code: ErrorCode
    ) -> None:
        """Report decisions as failed; reload the shard if the log may have them."""
        self._fail(hosted, results, coordinator_code(code))
        if hosted.dropped or code in NOT_APPENDED:
            return
        self._drop(hosted, ErrorCode.NOT_COORDINATOR)
        self._reloads.begin(hosted.partition, hosted.leader_epoch)

    def _fail(self, hosted: Hosted[S], results: list[Result[Any]], code: ErrorCode) -> None:
        for result in results:
            if result.failed is not None:
                self._accept(hosted, result.failed(self.now(), code))

    # Timers

    def _arm(self, hosted: Hosted[S], now: Now) -> None:
        """Set the timer so that the shard is called no later than its next deadline.

        `now` is a reading that the caller has just made.
        """
        deadline = hosted.shard.deadlines.next()
        if deadline is None or hosted.dropped:
            return
        if hosted.timer is not None:
            if hosted.timer_ms <= deadline:
                return
            hosted.timer.cancel()
        delay_ms = max(deadline - now.tick_ms, 0)
        hosted.timer_ms = deadline
        hosted.timer = self._tasks.call_later(delay_ms / 1000, self._on_timer, hosted)

    def _on_timer(self, hosted: Hosted[S]) -> None:
        hosted.timer = None
        if hosted.dropped:
            return
        now, deadlines = self.now(), hosted.shard.deadlines
        try:
            while not hosted.dropped and (key := deadlines.pop_due(now.tick_ms)) is not None:
                for result in hosted.shard.on_due(now, key):
                    self._accept(hosted, result)
        finally:
            self._arm(hosted, now)


def _replay(shard: Shard[Any], result: Result[Any]) -> None:
    if result.marker is not None:
        shard.replay_end(result.marker.producer_id, commit=result.marker.commit)
    for record in result.records:
        if result.producer is not None:
            shard.replay_pending(record, result.producer[0])
        else:
            shard.replay(record)
