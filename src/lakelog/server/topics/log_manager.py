"""Keeps the logs on disk equal to the metadata image.

The record comes first, the files follow: a topic's directories are created after the record of its
creation is committed, and renamed after that of its deletion. The next start repairs, from the
image, the differences that a crash has left.

Thousands of logs take seconds. So a thread creates their files, some at a time, and the
loop runs after every few removed ones. A topic becomes visible only after its logs exist; after a
deletion they are removed while other topics are served. Logs are handled in the order of their
names, so that a simulation is repeatable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TypeVar

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.keys.topics import FSYNC
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import KafkaError, is_shortage
from lakelog.base.events import event
from lakelog.metadata.failover import AT_START, NO_LEADER, Failure, PartitionImage
from lakelog.metadata.image import MetadataImage, TopicImage
from lakelog.metadata.records import (
    OF_MANY_PARTITIONS,
    ConfigRecord,
    PartitionRecord,
    Record,
    ResourceType,
    TopicRecord,
    TopicRemoved,
)
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.replica.role import Role
from lakelog.runtime.api import Clock, Tasks, pause
from lakelog.server.topics.durable_topics import DurableTopics
from lakelog.server.topics.topics import INTERNAL_TOPICS, changes_internal, log_config
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.loader import EPOCH_END
from lakelog.storage.log import Log

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LOGS_PER_ITERATION = 8
"""Logs that are removed or opened in one loop iteration: a millisecond or two of work."""
_REPORT_S = 10.0
_LOGS_AT_ONCE = 32
"""Logs that a thread creates before the loop checks whether the broker stops."""

_NAMES_USED_MAX = 1000
_UNUSABLE = Failure(AT_START, is_offline=True)
"""Of a log that could not be opened or created: no leader knows a position of it."""

DeletedTopics = list[tuple[str, bytes]]


class LogManager:
    """Creates, configures and deletes the logs of the partitions that this broker holds.

    Args:
        config: returns the broker's configuration in force.
        flush_soon: called by partitions, see `Partition`.
        appended, changed: called with the keys of partitions in the events of these names, see
            `Partition`.
        role_changed: called with each new partition, and when the role of one changes or ends.
        note_shortage: called with temporary failures, see `Shortages.note`.
        revoke: called when a partition has another epoch or settings, or fails, see `Admission`.
        checkpointed: waits until the checkpoint files are up to date.
        durable: the topics that a power failure leaves complete.
        failed: called with the key of a partition and the failure of its log; with None after the
            log was replaced, and before it is deleted.
    """

    def __init__(
        self,
        node_id: int,
        directory: LogDirectory,
        partitions: PartitionRegistry,
        config: Callable[[], BrokerConfig],
        flush_soon: Callable[[Partition], object],
        appended: Callable[[tuple[bytes, int]], object],
        changed: Callable[[tuple[bytes, int]], object],
        role_changed: Callable[[Partition], object],
        clock: Clock,
        tasks: Tasks,
        checkpointed: Callable[[], Awaitable[bool]],
        note_shortage: Callable[[OSError], object],
        revoke: Callable[[], object],
        durable: DurableTopics,
        failed: Callable[[tuple[bytes, int], Failure | None], object],
    ) -> None:
        self._failed = failed
        self._durable = durable
        self._node_id = node_id
        self._directory = directory
        self._partitions = partitions
        self._config = config
        self._flush_soon = flush_soon
        self._appended = appended
        self._changed = changed
        self._role_changed = role_changed
        self._clock = clock
        self._tasks = tasks
        self._checkpointed = checkpointed
        self._note_shortage = note_shortage
        self._revoke = revoke
        self._waiting: dict[tuple[bytes, int], None] = {}
        """Topic id and number of partitions whose logs wait for space."""
        self._lock = asyncio.Lock()
        """Held while logs are created and removed."""
        self._names_used: set[str] = set()
        """Names of deleted topics whose logs may still be in the checkpoint files."""
        self._touched = 0
        self._image = MetadataImage()
        self._stopped = False
        self.lost: list[tuple[str, bytes, int]] = []
        """Partitions that the controller may elect this broker for, and whose records it lacks: the
        name and id of the topic, and the index."""

    async def load(self, image: MetadataImage) -> None:
        """Open the existing logs, recovering them if necessary, and create the missing ones.

        A thread does the work, which may take minutes, so that the loop can handle signals. A
        cancellation interrupts the thread and waits for it.
        """
        reporting = self._tasks.spawn(self._report_progress(), name="report progress")
        try:
            await self._in_thread("load", partial(self._load_logs, image))
        finally:
            reporting.cancel()
        self.lost = self._find_lost(image)
        # A damaged log stays on disk and its partition offline. An empty one in its place would
        # restart the offsets.
        for (topic, index), error in self._directory.failed.items():
            failed_topic = image.topic(topic)
            if failed_topic is not None:
                self._partitions.add_offline(topic, failed_topic.topic_id, index, str(error))
                self._failed((failed_topic.topic_id, index), _UNUSABLE)
        self._image = image
        durable = [topic.topic_id for topic in image.topics if self._is_durable(image, topic)]
        await self._durable.restart(durable)
        configs = self._log_configs(image)
        for topic_image in sorted(image.topics, key=lambda topic: topic.name):
            await self._ensure(image, topic_image)
            if self._durable.is_bound(topic_image.topic_id):
                self._configure(topic_image, configs(topic_image.name))
        self._durable.watch_withdrawn(self._loosen)

    async def _report_progress(self) -> None:
        """Runs until cancelled: a recovery of many gigabytes takes minutes."""
        while True:
            await pause(self._tasks, _REPORT_S)
            progress = self._directory.progress
            logger.info(
                "Opened %d of %d logs; opening %s",
                *progress,
                extra=event("logs_loading", opened=progress.opened, logs=progress.total),
            )

    def _loosen(self, topic_ids: set[bytes]) -> None:
        """Apply the settings that had to wait for the end of a promise."""
        configs = self._log_configs(self._image)
        for topic in filter(None, map(self._image.topic_by_id, sorted(topic_ids))):
            self._configure(topic, configs(topic.name))
        self._revoke()

    def _find_lost(self, image: MetadataImage) -> list[tuple[str, bytes, int]]:
        """Return the partitions for which this broker is eligible, although its logs lack records.

        After a kill these logs are damaged or missing. After a power failure the broker is eligible
        for durable topics only: recovery cuts off no more than records that were not counted, so
        that these logs lack others only if they were replaced.
        """
        directory = self._directory
        return [
            (topic.name, topic.topic_id, partition.partition)
            for topic in image.topics
            for partition in topic.partitions.values()
            if self._node_id in (*partition.isr, *partition.elr)
            and (
                (key := (topic.name, partition.partition)) not in directory.logs
                or (
                    (recovery := directory.recoveries.get(key)) is not None
                    and (
                        recovery.is_replaced
                        or (directory.keeps_page_cache and recovery.may_have_lost)
                    )
                )
            )
        ]

    async def _in_thread(self, lane: str, work: Callable[[], T]) -> T:
        """Run `work` in a thread; when this is cancelled, interrupt the thread and wait for it."""
        working = self._tasks.offload(lane, work)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            self._directory.interrupt()
            await asyncio.wait([working])
            working.exception()  # otherwise asyncio logs an exception that was never retrieved
            raise

    def _load_logs(self, image: MetadataImage) -> None:
        configs = self._log_configs(image)
        topic_ids = _TopicIds(image)
        self._directory.load_logs(
            lambda topic, _: configs(topic), topic_ids, topic_ids.of, topic_ids.epoch_of
        )

    async def prepare(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        """Create new logs, except for topics whose name belongs to another one until `follow`.

        Without `records` the images are compared.
        """
        async with self._lock:
            changed = map(new.topic_by_id, _changes(old, new, records).topic_ids)
            # A name that belonged to a deleted topic has its folder until `follow` has renamed it.
            topics = [
                topic
                for topic in changed
                if topic is not None
                and old.topic_ids.get(topic.name, topic.topic_id) == topic.topic_id
            ]
            await self._name_durable(new, topics)
            for topic in topics:
                await self._ensure(new, topic)

    async def follow(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> DeletedTopics:
        """Apply the other changes; return (name, id) of deleted topics."""
        async with self._lock:
            return await self._follow(old, new, records)

    async def make_waiting(self, image: Callable[[], MetadataImage]) -> None:
        """Create the logs that had no space. `image` returns the one in force."""
        async with self._lock:
            waiting, self._waiting = self._waiting, {}
            for topic_id, index in waiting:
                topic = image().topic_by_id(topic_id)
                if topic is not None:
                    self._partitions.forget_offline(topic.name, topic_id, index)
            for topic_id in dict.fromkeys(topic_id for topic_id, _ in waiting):
                topic = image().topic_by_id(topic_id)
                if topic is not None:
                    await self._ensure(image(), topic)

    def waits(self, topic_id: bytes) -> bool:
        """Return whether an in-sync partition of the topic waits for space."""
        topic = self._image.topic_by_id(topic_id)
        return topic is not None and any(
            (topic_id, index) in self._waiting and self._node_id in partition.isr
            for index, partition in topic.partitions.items()
        )

    async def _follow(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> DeletedTopics:
        self._image = new
        changes = _changes(old, new, records)
        gone = []
        for topic_id in changes.topic_ids:
            before = old.topic_by_id(topic_id)
            if before is not None and new.topic_by_id(topic_id) is None:
                await self._delete(before)
                gone.append((before.name, topic_id))
        self._durable.forget(topic_id for _, topic_id in gone)
        topics = [topic for topic in map(new.topic_by_id, changes.topic_ids) if topic is not None]
        await self._name_durable(new, topics)
        for topic in topics:
            await self._ensure(new, topic)
        await self._follow_configs(old, new, changes, [name for name, _ in gone])
        return gone

    async def _follow_configs(
        self, old: MetadataImage, image: MetadataImage, changes: _Changes, gone: list[str]
    ) -> None:
        topics = self._configured(old, image, changes, gone)
        weak = [topic.topic_id for topic in topics if not self._is_durable(image, topic)]
        await self._durable.remove(weak)
        configs = self._log_configs(image)
        for topic in topics:
            self._configure(topic, configs(topic.name))
            if self._is_durable(image, topic):
                self._durable.await_flush(topic.topic_id)
        if topics or changes.all_configs:
            self._revoke()

    def _configured(
        self, old: MetadataImage, image: MetadataImage, changes: _Changes, gone: list[str]
    ) -> list[TopicImage]:
        """Return the topics whose settings may have changed."""
        if changes.all_configs:
            return sorted(image.topics, key=lambda topic: topic.name)
        internal = (
            INTERNAL_TOPICS
            if changes_internal(old, image, [*changes.config_names, *gone])
            else frozenset()
        )
        configured = (image.topic(name) for name in sorted(changes.config_names | internal))
        return [topic for topic in configured if topic is not None]

    def stop(self) -> None:
        """Leave missing logs to the next start."""
        self._stopped = True

    def close(self) -> None:
        """Complete waiting appends after the logs were closed, which has made them durable."""
        for partition in self._partitions:
            partition.note_flush()
            partition.retire()

    def _on_changed(self, partition: Partition) -> None:
        if not partition.is_online:
            self._revoke()
            self._partitions.note_offline(partition)
        self._changed(partition.key)

    def _note_failed(self, partition: Partition) -> None:
        if partition.is_retired:
            return  # a check in a thread may end after the deletion of the topic
        epoch, is_offline = partition.failed_in, partition.offline_reason is not None
        self._failed(partition.key, None if epoch is None else Failure(epoch, is_offline))

    async def _yield_sometimes(self) -> None:
        """Yield to the loop now and then; called for each log created or removed."""
        self._touched += 1
        if self._touched % _LOGS_PER_ITERATION == 0:
            await asyncio.sleep(0)

    async def _ensure(self, image: MetadataImage, topic: TopicImage) -> None:
        if topic.name in self._names_used or len(self._names_used) > _NAMES_USED_MAX:
            # After a crash the new logs would be compared with the recovery points of the old ones.
            self._names_used.clear()
            await self._checkpointed()
        if self._durable.names(topic.topic_id) and not self._is_durable(image, topic):
            await self._durable.remove([topic.topic_id])
        configs = self._log_configs(image)
        own = [
            partition
            for _, partition in sorted(topic.partitions.items())
            if self._node_id in partition.replicas
            and not self._partitions.is_offline(topic.name, partition.partition)
        ]
        logs = self._directory.logs
        missing = [p.partition for p in own if (topic.name, p.partition) not in logs]
        for start in range(0, len(missing), _LOGS_AT_ONCE):
            if self._stopped:
                return
            await self._make_logs(topic, missing[start : start + _LOGS_AT_ONCE], configs)
        for partition in own:
            if self._stopped:
                return
            if self._ensure_partition(topic, partition, configs):
                await self._yield_sometimes()

    async def _name_durable(self, image: MetadataImage, topics: Iterable[TopicImage]) -> None:
        """Name new topics with `fsync` in `durable-topics`, before they have partitions here.

        A topic with a partition has records that were appended under other settings, and may not be
        durable.
        """
        await self._durable.add(
            topic.topic_id
            for topic in topics
            if self._is_durable(image, topic)
            and all(
                self._partitions.get(topic.topic_id, index) is None for index in topic.partitions
            )
        )

    def _ensure_partition(
        self, topic: TopicImage, state: PartitionImage, configs: Callable[[str], LogConfig]
    ) -> bool:
        """Add the partition unless it is known; return whether it was new."""
        partition = existing = self._partitions.get(topic.name, state.partition)
        role = Role.in_image(state, self._node_id)
        if partition is None:
            log = self._directory.logs.get((topic.name, state.partition))
            if log is None:
                return False
            partition = Partition(
                log,
                role,
                self._flush_soon,
                self._on_changed,
                self._note_shortage,
                self._directory.space_guard,
                # The checkpoint: a leader that starts with 0 would hide committed records until its
                # followers have fetched (KIP-207).
                self._directory.high_watermarks.get((topic.name, state.partition), 0),
                self._monotonic_ms(),
                self._monotonic_ms,
                self._note_failed,
                self._appended,
            )
            self._partitions.add(partition)
        elif partition.role != role:
            self._revoke()
            # With the `min.insync.replicas` by which the controller has chosen this ISR.
            partition.assume(role, self._monotonic_ms(), configs(topic.name))
            self._copy_again(partition, state)
        else:
            return False
        self._role_changed(partition)
        return existing is None

    def _copy_again(self, partition: Partition, state: PartitionImage) -> None:
        """Replace a damaged log that no election counts any more by a copy of the leader's."""
        failed_in = partition.failed_in
        if (
            failed_in is not None
            and partition.is_online
            and state.leader not in (NO_LEADER, self._node_id)
            and state.leader_epoch > failed_in
            and self._node_id not in (*state.isr, *state.elr)
        ):
            with suppress(KafkaError):  # logged, and the partition is offline
                partition.copy_again()
                self._note_failed(partition)

    def _monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    async def _make_logs(
        self, topic: TopicImage, indexes: list[int], configs: Callable[[str], LogConfig]
    ) -> None:
        """Create logs in a thread: nearly all of the time is spent in the file system."""
        make = partial(self._make_files, topic, indexes, configs(topic.name))
        logs, failures = await self._in_thread("create", make)
        for log in logs:
            self._directory.add_log(log)
        for index, error in failures:
            reason = f"its log cannot be created: {error}"
            if is_shortage(error):
                self._note_shortage(error)
                self._waiting[topic.topic_id, index] = None
                reason = f"its log waits to be created: {error.strerror}"
            else:
                logger.error(
                    "partition %s-%d is offline: %s",
                    topic.name,
                    index,
                    reason,
                    extra=event(
                        "partition_offline", code="LL0304", topic=topic.name, partition=index
                    ),
                )
                self._failed((topic.topic_id, index), _UNUSABLE)
            self._partitions.add_offline(topic.name, topic.topic_id, index, reason)

    def _make_files(
        self, topic: TopicImage, indexes: list[int], config: LogConfig
    ) -> tuple[list[Log], list[tuple[int, OSError]]]:
        logs: list[Log] = []
        failures: list[tuple[int, OSError]] = []
        for index in indexes:
            try:
                logs.append(self._directory.make_log(topic.name, index, topic.topic_id, config))
            except OSError as error:
                failures.append((index, error))
        return logs, failures

    async def _delete(self, topic: TopicImage) -> None:
        self._names_used.add(topic.name)
        self._partitions.forget_offline(topic.name, topic.topic_id)
        self._waiting = {key: None for key in self._waiting if key[0] != topic.topic_id}
        for index in sorted(topic.partitions):
            self._failed((topic.topic_id, index), None)
            try:
                self._delete_partition(topic, index)
            except OSError as error:
                # Its id is unknown now, so the next start renames the rest to -stray.
                logger.error(
                    "%s-%d cannot be deleted: %s",
                    topic.name,
                    index,
                    error,
                    extra=event("log_deletion_failed", topic=topic.name, partition=index),
                )
            await self._yield_sometimes()

    def _delete_partition(self, topic: TopicImage, index: int) -> None:
        partition = self._partitions.get(topic.topic_id, index)
        if partition is not None:
            # Retired before its files are renamed: a request that holds it must not open one of
            # them.
            self._partitions.remove(partition)
            self._role_changed(partition)
            self._directory.schedule_delete(partition.log)
        elif (topic.name, index) in self._directory.failed:
            self._directory.schedule_delete_failed(topic.name, index, LogConfig())

    def _configure(self, topic: TopicImage, config: LogConfig) -> None:
        for index in topic.partitions:
            partition = self._partitions.get(topic.name, index)
            if partition is not None:
                partition.use_config(config)
                self._partitions.note_config(partition)

    def _log_configs(self, image: MetadataImage) -> Callable[[str], LogConfig]:
        """Return the settings in force by topic; the logs of a topic share one object."""

        def in_force(name: str) -> LogConfig:
            config, topic = log_config(image, self._config(), name), image.topic(name)
            is_bound = topic is not None and self._durable.is_bound(topic.topic_id)
            return config._replace(durability=FSYNC) if is_bound else config

        return cache(in_force)

    def _is_durable(self, image: MetadataImage, topic: TopicImage) -> bool:
        """Return whether the topic has `durability=fsync`, which need not be in force yet."""
        return log_config(image, self._config(), topic.name).durability == FSYNC


class _TopicIds:
    """The existing topic ids, as a container."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def epoch_of(self, topic_id: bytes, index: int) -> int:
        """Return the end (exclusive) of the leader epochs that a log may have."""
        topic = self._image.topic_by_id(topic_id)
        partition = topic.partitions.get(index) if topic is not None else None
        return partition.leader_epoch + 1 if partition is not None else EPOCH_END

    def of(self, name: str) -> bytes | None:
        topic = self._image.topic(name)
        return topic.topic_id if topic is not None else None

    def __contains__(self, topic_id: object) -> bool:
        return isinstance(topic_id, bytes) and self._image.topic_by_id(topic_id) is not None


@dataclass(slots=True)
class _Changes:
    """The topics and settings that an update may have changed."""

    topic_ids: dict[bytes, None] = field(default_factory=dict)
    config_names: set[str] = field(default_factory=set)
    all_configs: bool = False


def _changes(old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]) -> _Changes:
    if not records or any(isinstance(record, OF_MANY_PARTITIONS) for record in records):
        return _compared(old, new)
    return _named(records)


def _named(records: tuple[Record, ...]) -> _Changes:
    changes = _Changes()
    for record in records:
        if isinstance(record, TopicRecord | PartitionRecord | TopicRemoved):
            changes.topic_ids[record.topic_id] = None
        elif isinstance(record, ConfigRecord):
            if record.resource_type == ResourceType.TOPIC:
                changes.config_names.add(record.resource_name)
            else:
                changes.all_configs = True
    return changes


def _compared(old: MetadataImage, new: MetadataImage) -> _Changes:
    changes = _Changes(all_configs=new.config_map is not old.config_map)
    for image, other in ((old, new), (new, old)):
        for topic in sorted(image.topics, key=lambda topic: topic.name):
            if other.topic_by_id(topic.topic_id) is not topic:
                changes.topic_ids[topic.topic_id] = None
    return changes
