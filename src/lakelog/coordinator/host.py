"""Hosts the shards of the partitions that this broker coordinates.

The host finds the shard of a key, and loads and unloads shards. A shard belongs to the leader epoch
in which it was loaded (`shard_context.py`, which writes its decisions). If the outcome of an append
is unknown, the host drops the shard and reloads it from the log: memory never differs from the log.

The event loop runs between the reads of a log. If the log cannot be read now, because the disk is
full or no file descriptor is left, the load is retried, as it is after an unexpected exception:
nothing else would load the partition before the next start of the broker. One log line stands for
all failures in a row.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.coordinator.keys import partition_for
from lakelog.coordinator.requests import ClientRequest
from lakelog.coordinator.shard import (
    Now,
    PartitionLog,
    PartitionLogs,
    Reply,
    Request,
    Result,
    Shard,
    coordinator_code,
)
from lakelog.coordinator.shard_context import ShardContext, Writing
from lakelog.records.batch import BatchHeader, CorruptRecord, check_crc, iter_batches
from lakelog.records.record import decode_records
from lakelog.runtime.api import Clock, Tasks, Timer
from lakelog.wire.primitives import WireError

logger = logging.getLogger(__name__)

UNREADABLE = (KafkaError, OSError, CorruptRecord, WireError)
"""Errors that loading a partition raises if the log cannot be read."""
_RETRY_S = 1.0
_BATCH_BYTES_MAX = 64 << 20
"""Largest size that one batch may have when it is decompressed."""
_ABORT, _COMMIT = b"\x00\x00", b"\x00\x01"
"""Types of a control record; they follow the version in its key."""


async def replay_log(
    log: PartitionLog,
    tasks: Tasks,
    topic: str,
    partition: int,
    shard: Shard[Any],
    is_dropped: Callable[[], bool],
) -> None:
    """Replay all committed records of a partition in the order of their offsets.

    Returns early once the shard is dropped. Raises `KafkaError` or `OSError` if the log cannot be
    read, `CorruptRecord` for a batch with a wrong CRC, `WireError` for a malformed record.
    """
    offset = await log.start_offset()
    while not is_dropped():
        data = await log.read(offset)
        if not data:
            return
        previous = offset
        for header, batch in iter_batches(data):
            if not check_crc(batch, 0, header):
                raise CorruptRecord(f"{topic}-{partition}: bad CRC at {offset}")
            _replay_batch(shard, header, batch, offset)
            offset = header.last_offset + 1
        if offset == previous:
            raise CorruptRecord(f"{topic}-{partition} returned no batch at {offset}")
        await _yield_to_loop(tasks)


def _replay_batch(shard: Shard[Any], header: BatchHeader, batch: memoryview, offset: int) -> None:
    for record in decode_records(batch, header, _BATCH_BYTES_MAX):
        if record.offset < offset or record.key is None:
            continue
        if header.is_control:
            _replay_control(shard, header.producer_id, record.key)
        elif (decoded := shard.decode(record.key, record.value)) is None:
            continue
        elif header.is_transactional:
            shard.replay_pending(decoded, header.producer_id)
        else:
            shard.replay(decoded)


def _replay_control(shard: Shard[Any], producer_id: int, key: bytes) -> None:
    """Other control records (a leader change, a snapshot's head) do not concern coordinators."""
    kind = key[2:4]
    if kind in (_ABORT, _COMMIT):
        shard.replay_end(producer_id, commit=kind == _COMMIT)


async def _yield_to_loop(tasks: Tasks) -> None:
    pause = tasks.future()
    tasks.call_soon(pause.set_result, None)
    await pause


class Reloads:
    """Reloads of the partitions of one internal topic.

    Args:
        topic: name of the topic, for log messages.
        load: loads a partition for a leader epoch, or returns at once if it is loaded.
    """

    def __init__(
        self, topic: str, load: Callable[[int, int], Awaitable[None]], tasks: Tasks
    ) -> None:
        self._topic = topic
        self._load = load
        self._tasks = tasks
        self._failed: dict[int, Timer] = {}
        """Timers of the next attempts, the last one also during the attempt."""

    def begin(self, partition: int, leader_epoch: int) -> None:
        """Start to reload a partition whose shard was dropped."""
        name = f"reload {self._topic}-{partition}"
        self._tasks.spawn(self._reload(partition, leader_epoch), name=name)

    def survive(self, partition: int, leader_epoch: int, bug: Exception) -> None:
        """Load a partition again after an exception that no code expects."""
        if partition not in self._failed:
            logger.error(
                "loading %s-%d failed, and is repeated: %r",
                self._topic,
                partition,
                bug,
                exc_info=bug,
                extra=event("task_failed", task=f"load {self._topic}-{partition}"),
            )
        self._retry_later(partition, leader_epoch)

    def _retry_later(self, partition: int, leader_epoch: int) -> None:
        # A load that was not a retry may have failed, while the next retry waits.
        self.cancel(partition)
        timer = self._tasks.call_later(_RETRY_S, self.begin, partition, leader_epoch)
        self._failed[partition] = timer

    def cancel(self, partition: int) -> None:
        """Stop retrying to load a partition, which is loaded or not led any more."""
        timer = self._failed.pop(partition, None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        """Stop retrying to load any partition."""
        for partition in list(self._failed):
            self.cancel(partition)

    async def _reload(self, partition: int, leader_epoch: int) -> None:
        try:
            await self._load(partition, leader_epoch)
        except UNREADABLE as error:
            code = error.code if isinstance(error, KafkaError) else None
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return  # the change of the role loads the partition, if this broker still leads it
            if partition not in self._failed:
                logger.error(
                    "cannot reload %s-%d: %s",
                    self._topic,
                    partition,
                    error,
                    extra=event("coordinator_load_failed", topic=self._topic, partition=partition),
                )
            if code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._retry_later(partition, leader_epoch)


S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")


def _provides_nothing(need: object, request: object) -> None:
    raise AssertionError(f"no decision of this coordinator needs {need}")


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
        routing: returns the part of a key that chooses its partition; by default all of it.
        provide: meets the `need` of a decision, and then calls `ask` with its request again.
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
        routing: Callable[[str], str] = str,
        provide: Callable[[Any, Any], None] = _provides_nothing,
    ) -> None:
        self._topic = topic
        self._routing = routing
        self._logs = logs
        self._tasks = tasks
        self._new_shard = new_shard
        self._topics = topics
        self._partitions_default = partitions
        self._empty_key_code = empty_key_code
        self._writing = Writing(topic, clock, tasks, batch_bytes_max, codec, self._reload, provide)
        self._contexts: dict[int, ShardContext[S]] = {}
        self._reloads = Reloads(topic, self.load, tasks)

    @property
    def partitions(self) -> list[int]:
        """Partitions that are loaded or being loaded."""
        return sorted(self._contexts)

    @property
    def loading(self) -> list[int]:
        """Partitions that have not been replayed to their end."""
        return [partition for partition, context in self._contexts.items() if not context.active]

    @property
    def is_complete(self) -> bool:
        """Whether each partition that this broker leads has been replayed to its end.

        A partition that is about to be loaded, or whose log cannot be read, is not served.
        """
        context = map(self._contexts.get, self._logs.led())
        return all(partition is not None and partition.active for partition in context)

    def active_shards(self) -> list[S]:
        """Return the shards that have been replayed to their end."""
        return [context.shard for context in self._contexts.values() if context.active]

    def partition_for(self, key: str) -> int:
        """Return the partition that stores `key`: a group id or a transactional id."""
        count = self._topics.partition_count(self._topic) or self._partitions_default
        return partition_for(self._routing(key), count)

    def shard(self, partition: int) -> S:
        """Return the shard of a partition.

        Raises `KafkaError(NOT_COORDINATOR)`, or `KafkaError(COORDINATOR_LOAD_IN_PROGRESS)` until
        the partition has been replayed.
        """
        return self._active(partition).shard

    def shard_of(self, key: str, *, allows_empty: bool = False) -> S:
        """Return the shard that coordinates `key`.

        Raises as `shard` does, or `KafkaError(empty_key_code)` for an empty key. Another broker may
        have a newer state unless this one is current: it raises NOT_COORDINATOR then.
        """
        if not key and not allows_empty:
            raise KafkaError(self._empty_key_code)
        if not self._logs.is_current():
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return self._active(self.partition_for(key)).shard

    def _active(self, partition: int) -> ShardContext[S]:
        context = self._contexts.get(partition)
        if context is None or not context.active:
            raise KafkaError(_code_without(context))
        return context

    def ask(self, request: Request[S]) -> None:
        """Decide a request; the reply comes once the decision is committed.

        An error is its refusal, with a code for the client; nothing is raised.
        """
        if not request.key and not request.allows_empty_key:
            request.refuse(self._empty_key_code)
            return
        context = self._contexts.get(self.partition_for(request.key))
        if context is None or not context.active:
            request.refuse(_code_without(context))
            return
        if not self._logs.is_current():
            request.refuse(ErrorCode.NOT_COORDINATOR)
            return
        try:
            context.decide(request.decide, request)
        except KafkaError as error:
            request.refuse(coordinator_code(error.code))

    def decide(
        self,
        partition: int,
        decision: Callable[[S, Now], Result[Any]],
        request: Request[S] | None = None,
    ) -> None:
        """Call `decision` with the partition's shard, and write its result. Raises as `shard`."""
        self._active(partition).decide(decision, request)

    def now(self) -> Now:
        """Read both clocks."""
        return self._writing.now()

    # Loading and unloading

    def leader_epoch(self, partition: int) -> int | None:
        """Return the leader epoch for which a partition is loaded or being loaded, if it is."""
        context = self._contexts.get(partition)
        return None if context is None else context.leader_epoch

    async def load(self, partition: int, leader_epoch: int) -> None:
        """Replay the partition and begin to serve it in this leader epoch.

        Returns at once if it is served in this epoch, and unloads a shard of another one. Raises
        `KafkaError`, `OSError`, `CorruptRecord` or `WireError` if the epoch is over or the log
        cannot be read. The partition is then not served. After any other exception it is loaded
        again later.
        """
        log = self._logs.open(partition, leader_epoch)
        if self.leader_epoch(partition) == leader_epoch:
            return
        self._drop_context(partition)
        shard = self._new_shard(partition, leader_epoch)
        context = self._contexts[partition] = ShardContext(
            partition, leader_epoch, log, shard, self._writing
        )
        try:
            # An append of an earlier shard may be in the log, and must be replayed then.
            if (writer := self._writing.writers.get(partition)) is not None:
                await writer
            await replay_log(
                log, self._tasks, self._topic, partition, shard, lambda: context.dropped
            )
            if context.dropped:
                return
            assert self._contexts.get(partition) is context, "two shards would decide at once"
            context.begin()
        except UNREADABLE:
            if context.dropped:
                return
            self._drop(context, ErrorCode.NOT_COORDINATOR)
            raise
        except Exception as bug:  # noqa: BLE001 - the partition would be loading for ever
            if not context.dropped:
                self._drop(context, ErrorCode.NOT_COORDINATOR)
                self._reloads.survive(partition, leader_epoch, bug)
            return
        self._reloads.cancel(partition)

    def unload(self, partition: int) -> None:
        """Stop at once, and answer all waiting requests `NOT_COORDINATOR`."""
        self._reloads.cancel(partition)
        self._drop_context(partition)

    def _drop_context(self, partition: int) -> None:
        context = self._contexts.get(partition)
        if context is not None:
            self._drop(context, ErrorCode.NOT_COORDINATOR)

    def close(self) -> None:
        """Unload all partitions, and load none again."""
        for partition in self.partitions:
            self.unload(partition)
        self._reloads.cancel_all()

    def _drop(self, context: ShardContext[S], code: ErrorCode) -> None:
        assert self._contexts[context.partition] is context, "its successor would be dropped"
        del self._contexts[context.partition]
        context.drop(code)

    def _reload(self, context: ShardContext[S]) -> None:
        """Replay the log again: it may have decisions that were reported as failed."""
        self._drop(context, ErrorCode.NOT_COORDINATOR)
        self._reloads.begin(context.partition, context.leader_epoch)


def _code_without(context: ShardContext[Any] | None) -> ErrorCode:
    """Return the code for a request to a partition that is not served, or is being loaded."""
    if context is None:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Coordinator(Generic[S]):
    """The partitions of a coordinator, and the way of its requests to their shards."""

    _host: ShardHost[S]

    def partition_for(self, key: str) -> int:
        """Return the partition whose leader coordinates a group or a transactional id."""
        return self._host.partition_for(key)

    @property
    def partitions(self) -> list[int]:
        """Partitions that are loaded or being loaded."""
        return self._host.partitions

    @property
    def loading(self) -> list[int]:
        """Partitions that are being loaded."""
        return self._host.loading

    def leader_epoch(self, partition: int) -> int | None:
        """Return the leader epoch for which a partition is loaded or being loaded, if it is."""
        return self._host.leader_epoch(partition)

    async def load_partition(self, partition: int, leader_epoch: int) -> None:
        """Load a partition; called when this broker has become its leader.

        Until it returns, requests get `COORDINATOR_LOAD_IN_PROGRESS`. Raises `KafkaError` or
        `OSError` from the log, `CorruptRecord` or `WireError`; the partition then stays unloaded.
        """
        await self._host.load(partition, leader_epoch)

    def unload_partition(self, partition: int) -> None:
        """Unload a partition; called when the leader epoch is over."""
        self._host.unload(partition)

    def close(self) -> None:
        """Unload all partitions; also called when the coordinator's topic was deleted."""
        self._host.close()

    def _ask(self, request: ClientRequest) -> Reply[T]:
        """Have the request decided; return its future."""
        self._host.ask(request)
        future: Reply[T] = request.future
        return future
