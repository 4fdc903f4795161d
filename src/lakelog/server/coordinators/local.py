"""The coordinators of this broker: each partition of their topics is loaded while it is led here.

A shard belongs to one leader epoch. At every change of the epoch it is unloaded at once, before
another coordinator can have decided anything, and loaded again if this broker leads. A start loads
groups first, because the end of a transaction may have to be applied to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import KafkaError
from lakelog.base.events import event
from lakelog.base.memory_budget import Share
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.coordinator import GROUP_TOPIC, GroupCoordinator
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from lakelog.coordinator.transaction.ids import TransactionConfig
from lakelog.metadata.image import MetadataImage, TopicImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.records import PartitionRecord, Record, TopicRecord, TopicRemoved
from lakelog.records.batch import CorruptRecord
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Clock, Random, Tasks
from lakelog.server.coordinators.hanging_transactions import HangingWatch, end_hanging
from lakelog.server.coordinators.leaders import ClusterMarkers, PartitionLeaders
from lakelog.server.coordinators.lease import LaterLeaders, Lease
from lakelog.server.coordinators.markers import LocalMarkers
from lakelog.server.coordinators.partition_log import ClusterProducerLogs, LocalPartitionLogs
from lakelog.server.coordinators.verification import ClusterVerification, KnownTransactions
from lakelog.server.inter_broker.peer import Peer
from lakelog.server.log_limits import RefusedJoins
from lakelog.server.topics.topics import Topics
from lakelog.server.upkeep.stored_checks import StoredChecks
from lakelog.wire.primitives import WireError

logger = logging.getLogger(__name__)

ReserveBlock = Callable[[], Awaitable[range]]


class ProducerIds:
    def __init__(
        self, reserve: ReserveBlock, tasks: Tasks, forgotten_epochs_end: Callable[[], int]
    ) -> None:
        """forgotten_epochs_end: returns the producer id before which none is assigned any more."""
        self._reserve = reserve
        self._tasks = tasks
        self._forgotten_epochs_end = forgotten_epochs_end
        self._block = iter(range(0))
        self._waiting: deque[asyncio.Future[int]] = deque()

    async def next(self) -> int:
        """Return a new id. Raises `KafkaError` if no block can be reserved."""
        if not self._waiting:
            value = self._next_of_block()
            if value is not None:
                return value
        waiter: asyncio.Future[int] = self._tasks.future()
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            self._tasks.spawn(self._refill(), name="producer-ids")
        return await waiter

    def _next_of_block(self) -> int | None:
        end = self._forgotten_epochs_end()
        return next((value for value in self._block if value >= end), None)

    async def _refill(self) -> None:
        """Reserve one block for all waiting callers."""
        while self._waiting:
            try:
                self._block = iter(await self._reserve())
            except Exception as error:  # noqa: BLE001 - each waiter reports it
                while self._waiting:
                    _fail(self._waiting.popleft(), error)
                return
            while self._waiting and (value := self._next_of_block()) is not None:
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_result(value)


def _fail(waiter: asyncio.Future[int], error: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(error)


class Seams(Protocol):
    """The parts of the environment that coordinators need."""

    @property
    def clock(self) -> Clock: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def random(self) -> Random: ...


class _Coordinator(Protocol):
    def leader_epoch(self, partition: int) -> int | None: ...

    @property
    def load_partition(self) -> Callable[[int, int], Awaitable[None]]: ...

    def unload_partition(self, partition: int) -> None: ...

    def close(self) -> None: ...


class Coordinators:
    """The group and the transaction coordinator of a broker.

    Args:
        config: the configuration at the start of the broker.
        partitions: the partitions of this broker.
        metadata: knows leaders, and which epochs may have been forgotten.
        peer: returns the connection to another broker, None without an address.
    """

    def __init__(
        self,
        config: BrokerConfig,
        seams: Seams,
        partitions: PartitionRegistry,
        purgatory: Purgatory,
        topics: Topics,
        producer_ids: ProducerIds,
        metadata: MetadataLog,
        memory: Share,
        checks: StoredChecks,
        node_id: int,
        peer: Callable[[int], Peer | None],
    ) -> None:
        clock, tasks = seams.clock, seams.tasks
        commit_s = config.get_int("offsets.commit.timeout.ms") / 1000
        request_s = config.get_int("request.timeout.ms") / 1000
        parts = (partitions, purgatory, clock, tasks, checks)
        self._partitions = partitions
        self._tasks = tasks
        self._lease = Lease(
            metadata.catch_up,
            lambda: metadata.heartbeat_s,
            lambda: metadata.contact_s,
            LaterLeaders(node_id, lambda: metadata.image, lambda: metadata.controller_id, peer).ask,
            config.get_int("broker.session.timeout.ms") / 1000,
            clock,
            tasks,
        )
        logs = partial(LocalPartitionLogs, is_current=self._lease.holds)
        self._is_open = False
        """Whether partitions are loaded as soon as this broker leads them."""
        self.groups = GroupCoordinator(
            GroupConfig.from_broker(config),
            clock,
            tasks,
            seams.random,
            logs(GROUP_TOPIC, commit_s, *parts),
            topics,
            topics.group_times,
            memory=memory,
            join_refused=RefusedJoins(clock).note,
        )
        leaders = PartitionLeaders(node_id, lambda: metadata.image, peer, request_s)
        self.markers = LocalMarkers(request_s, self.groups, *parts)
        self.transactions = TransactionCoordinator(
            TransactionConfig.from_broker(config),
            clock,
            tasks,
            logs(TRANSACTION_TOPIC, request_s, *parts),
            topics,
            ClusterMarkers(leaders, self.markers, tasks),
            ClusterProducerLogs(leaders, partitions, tasks),
            new_producer_id=producer_ids.next,
            forgotten_epochs_end=lambda: metadata.image.forgotten_epochs_end,
            memory=memory,
        )
        self.verification = ClusterVerification(leaders, self.transactions, tasks)
        self._hanging = HangingWatch(
            partitions,
            KnownTransactions(leaders, self.transactions, metadata.catch_up),
            self.transactions,
            self.markers,
            tasks,
        )
        self._in_cluster = False
        self._by_topic: dict[str, _Coordinator] = {
            GROUP_TOPIC: self.groups,
            TRANSACTION_TOPIC: self.transactions,
        }

    @property
    def is_current(self) -> bool:
        """Whether no other broker can have taken the place of this one."""
        return self._lease.holds()

    async def load(self, image: MetadataImage) -> None:
        """Load all led partitions, and end hanging transactions before clients can write.

        A partition whose high watermark waits for followers is loaded later: they can fetch only
        once this broker accepts connections.
        """
        self._is_open = True
        # The order matters: hanging transactions are found by comparing all loaded coordinators
        # with all logs, before any marker changes either.
        self.transactions.hold_markers()
        for partition in self._led(image):
            if partition.watermark.offset < partition.log.log_end_offset:
                self._load_soon(partition)
            else:
                await self._load(partition)
        end_hanging(self._partitions, self.transactions, self.markers, self._tasks)
        self.transactions.release_markers()

    def join_others(self) -> None:
        """Answer only while the lease holds, and end hanging transactions, in a cluster.

        A broker alone ends them in `load`: its coordinators are the only ones.
        """
        self._in_cluster = True
        self._lease.start()
        self._hanging.look(self._partitions)

    def deny_lease(self) -> None:
        """Answer no more until the controller confirms this broker again."""
        self._lease.deny()

    def follow(self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]) -> None:
        """Have consumer groups follow the topics that they subscribe to.

        Without `records` the images are compared: this broker has loaded a snapshot. A new leader
        of `__transaction_state` may lack transactions that are open in partitions.
        """
        if self._in_cluster and _have_coordinators_changed(old, new):
            self._hanging.look(self._partitions)
        created, changed = _named(old, new, records) if records else _compared(old, new)
        if changed:
            self.groups.on_topics_changed(changed, are_new=bool(created))

    def role_changed(self, partition: Partition) -> None:
        """Follow a change of the partition's role; a retired partition has none."""
        if self._in_cluster:
            self._hanging.look([partition])
        coordinator = self._by_topic.get(partition.topic)
        if coordinator is None or not self._is_open:
            return
        index = partition.index
        if not partition.serves:
            coordinator.unload_partition(index)
        # Also if this broker led before: between two of its leader epochs another coordinator may
        # have written.
        elif coordinator.leader_epoch(index) != partition.leader_epoch:
            coordinator.unload_partition(index)
            self._load_soon(partition)

    async def load_missing(self, image: MetadataImage) -> None:
        """Load the led partitions whose logs could not be read before."""
        for partition in self._led(image):
            if self._is_open:
                await self._load(partition)

    def on_topics_deleted(self, gone: list[tuple[str, bytes]]) -> None:
        """Forget the offsets of deleted topics, and end a coordinator whose topic is deleted.

        `gone` has the name and the id of each topic.
        """
        for name, _ in gone:
            if name in self._by_topic:
                self._by_topic[name].close()
        self.groups.on_topics_deleted(gone)

    def close(self) -> None:
        self._is_open = self._in_cluster = False
        self._hanging.close()
        self._lease.stop()
        for coordinator in self._by_topic.values():
            coordinator.close()

    def _led(self, image: MetadataImage) -> list[Partition]:
        """Return the led partitions of the coordinators' topics, first of groups."""
        topics = [image.topic(name) for name in self._by_topic]
        partitions = [
            self._partitions.get(topic.topic_id, index)
            for topic in topics
            if topic is not None
            for index in sorted(topic.partitions)
        ]
        return [partition for partition in partitions if partition is not None and partition.serves]

    def _load_soon(self, partition: Partition) -> None:
        name = f"load {partition.topic}-{partition.index}"
        self._tasks.spawn(self._load(partition), name=name)

    async def _load(self, partition: Partition) -> None:
        """Load the partition in its current leader epoch; the log states a failure."""
        if not partition.serves:
            return
        coordinator = self._by_topic[partition.topic]
        try:
            await coordinator.load_partition(partition.index, partition.leader_epoch)
        except (KafkaError, OSError, CorruptRecord, WireError) as error:
            logger.error(
                "%s-%d cannot be loaded: %s",
                partition.topic,
                partition.index,
                error,
                extra=event(
                    "coordinator_load_failed", topic=partition.topic, partition=partition.index
                ),
            )


def _named(
    old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
) -> tuple[set[str], set[str]]:
    """Return the names of the created topics, and of all topics that the records change."""
    created = {record.name for record in records if isinstance(record, TopicRecord)}
    ids = {
        record.topic_id for record in records if isinstance(record, PartitionRecord | TopicRemoved)
    }
    topics = [image.topic_by_id(topic_id) for image in (old, new) for topic_id in ids]
    return created, created | {topic.name for topic in topics if topic is not None}


def _compared(old: MetadataImage, new: MetadataImage) -> tuple[set[str], set[str]]:
    """Return the names of the topics that only `new` has, and of all that differ."""
    created = {topic.name for topic in new.topics if old.topic_by_id(topic.topic_id) is None}
    deleted = {topic.name for topic in old.topics if new.topic_by_id(topic.topic_id) is None}
    grown = {
        topic.name
        for topic in new.topics
        if (before := old.topic_by_id(topic.topic_id)) is not None and len(before) != len(topic)
    }
    return created, created | deleted | grown


def _have_coordinators_changed(old: MetadataImage, new: MetadataImage) -> bool:
    """Return whether a transaction coordinator has another leader epoch."""
    before, after = old.topic(TRANSACTION_TOPIC), new.topic(TRANSACTION_TOPIC)
    # Images share the topics that an entry leaves alone, so most entries cost one comparison.
    return before is not after and _leader_epochs(before) != _leader_epochs(after)


def _leader_epochs(topic: TopicImage | None) -> dict[int, int]:
    partitions = topic.partitions if topic is not None else {}
    return {index: partitions[index].leader_epoch for index in partitions}
