"""Hosts the shards of the partitions that this broker coordinates.

The host finds the shard of a key, and loads and unloads shards. A shard belongs to the leader epoch
in which it was loaded (`shard_context.py`, which writes its decisions). If the outcome of an append
is unknown, the host drops the shard and reloads it from the log: memory never differs from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.loading import UNREADABLE, Reloads, replay_log
from lakelog.coordinator.partitioning import partition_for
from lakelog.coordinator.shard import Now, PartitionLogs, Request, Result, Shard, coordinator_code
from lakelog.coordinator.shard_context import ShardContext, Writing
from lakelog.runtime.api import Clock, Tasks

S = TypeVar("S", bound=Shard[Any])


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
