"""The coordinators of this broker, whose partitions are loaded as the metadata image says.

Groups are loaded first, because the end of a transaction may have to be applied to them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import KafkaError
from lakelog.base.events import event
from lakelog.base.memory_budget import Share
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.coordinator import GROUP_TOPIC, GroupCoordinator
from lakelog.coordinator.transaction.config import TransactionConfig
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.records import PartitionRecord, Record, TopicRecord, TopicRemoved
from lakelog.records.errors import CorruptRecord
from lakelog.replica.partitions import Partitions
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Clock, Random, Tasks
from lakelog.server.cluster.topics import Topics
from lakelog.server.coordinators.hanging_transactions import end_hanging
from lakelog.server.coordinators.markers import LocalMarkers
from lakelog.server.coordinators.partition_log import LocalPartitionLog
from lakelog.server.coordinators.producer_ids import ProducerIds
from lakelog.server.event_log.refused_joins import RefusedJoins
from lakelog.server.upkeep.stored_checks import StoredChecks
from lakelog.wire.errors import WireError

logger = logging.getLogger(__name__)


class Seams(Protocol):
    """The parts of the environment that coordinators need."""

    @property
    def clock(self) -> Clock: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def random(self) -> Random: ...


class _Coordinator(Protocol):
    @property
    def partitions(self) -> list[int]: ...

    @property
    def load_partition(self) -> Callable[[int], Awaitable[None]]: ...

    def close(self) -> None: ...


class Coordinators:
    """The group and the transaction coordinator of a broker.

    Args:
        config: the configuration at the start of the broker.
        partitions: the partitions of this broker.
        metadata: knows which epochs may have been forgotten.
    """

    def __init__(
        self,
        config: BrokerConfig,
        seams: Seams,
        partitions: Partitions,
        purgatory: Purgatory,
        topics: Topics,
        producer_ids: ProducerIds,
        metadata: MetadataLog,
        memory: Share,
        checks: StoredChecks,
    ) -> None:
        clock, tasks = seams.clock, seams.tasks
        self._partitions = partitions
        self._tasks = tasks
        self._closed = False
        self.groups = GroupCoordinator(
            GroupConfig.from_broker(config),
            clock,
            tasks,
            seams.random,
            LocalPartitionLog(GROUP_TOPIC, partitions, purgatory, clock, tasks, checks),
            topics,
            topics.group_times,
            memory=memory,
            join_refused=RefusedJoins(clock).note,
        )
        self.markers = LocalMarkers(partitions, self.groups, purgatory, clock, tasks, checks)
        self.transactions = TransactionCoordinator(
            TransactionConfig.from_broker(config),
            clock,
            tasks,
            LocalPartitionLog(TRANSACTION_TOPIC, partitions, purgatory, clock, tasks, checks),
            topics,
            self.markers,
            new_producer_id=producer_ids.next,
            epoch_of=lambda index: partitions.leader(TRANSACTION_TOPIC, index).leader_epoch,
            forgotten_epochs_end=lambda: metadata.image.forgotten_epochs_end,
            memory=memory,
        )
        self._by_topic: dict[str, _Coordinator] = {
            GROUP_TOPIC: self.groups,
            TRANSACTION_TOPIC: self.transactions,
        }

    async def load(self, image: MetadataImage) -> None:
        """Load all partitions, and end hanging transactions before clients can write."""
        self.transactions.hold_markers()
        for name in self._by_topic:
            await self._load(image, name)
        end_hanging(self._partitions, self.transactions, self.markers, self._tasks)
        self.transactions.release_markers()

    def follow(self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]) -> None:
        self._notify_groups(old, new, records)
        for name in self._by_topic:
            topic = new.topic(name)
            if topic is not None and topic is not old.topic(name):
                self._tasks.spawn(self._load(new, name), name=f"load {name}")

    def _notify_groups(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        """Have consumer groups follow the topics that they subscribe to."""
        created = {record.name for record in records if isinstance(record, TopicRecord)}
        ids = {
            record.topic_id
            for record in records
            if isinstance(record, PartitionRecord | TopicRemoved)
        }
        topics = [image.topic_by_id(topic_id) for image in (old, new) for topic_id in ids]
        changed = created | {topic.name for topic in topics if topic is not None}
        if changed:
            self.groups.on_topics_changed(changed, are_new=bool(created))

    async def load_missing(self, image: MetadataImage) -> None:
        """Load the partitions whose logs could not be created or read before."""
        for name in self._by_topic:
            if not self._closed:
                await self._load(image, name)

    def on_topics_deleted(self, gone: list[tuple[str, bytes]]) -> None:
        """Forget the offsets of deleted topics, and end a coordinator whose topic is deleted.

        `gone` has the name and the id of each topic.
        """
        for name, _ in gone:
            if name in self._by_topic:
                self._by_topic[name].close()
        self.groups.on_topics_deleted(gone)

    def close(self) -> None:
        self._closed = True
        for coordinator in self._by_topic.values():
            coordinator.close()

    async def _load(self, image: MetadataImage, name: str) -> None:
        topic, coordinator = image.topic(name), self._by_topic[name]
        for index in sorted(topic.partitions) if topic is not None else ():
            if index in coordinator.partitions or self._partitions.get(name, index) is None:
                continue
            try:
                await coordinator.load_partition(index)
            except (KafkaError, OSError, CorruptRecord, WireError) as error:
                logger.error(
                    "%s-%d cannot be loaded: %s",
                    name,
                    index,
                    error,
                    extra=event("coordinator_load_failed", topic=name, partition=index),
                )
