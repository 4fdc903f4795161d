"""Lookups of topics, their creation, deletion and growth, and the settings of their logs.

A topic is created automatically in two cases: a client asks for its metadata and both sides allow
that, or the broker needs one of its internal topics.

Internal topics hold decisions of coordinators and committed offsets, which have to survive every
failure that the records of their topics survive. So if any topic has `durability=fsync`, internal
topics have it too, although the broker's default is the page cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.key import ConfigError
from lakelog.base.config.keys.groups import group_times
from lakelog.base.config.keys.topics import FSYNC
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.metadata.controller.assignment import PARTITIONS_PER_REQUEST_MAX
from lakelog.metadata.controller.topics import (
    MorePartitions,
    NewTopic,
    TopicReference,
    TopicResult,
    plan_create_partitions,
    plan_create_topics,
    plan_delete_topics,
)
from lakelog.metadata.describe_configs import effective_log_config
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import PartitionRecord, ResourceType
from lakelog.protocol.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lakelog.runtime.api import Random
from lakelog.server.controller.relays import PATIENCE_S, ControllerLink
from lakelog.server.inter_broker.reachable_brokers import ReachableBrokers

logger = logging.getLogger(__name__)

INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, "__share_group_state"})


class _Keys(NamedTuple):
    """Keys of the broker's configuration for a coordinator's topic."""

    partitions: str
    replication_factor: str
    segment_bytes: str


_MADE_HERE = {
    GROUP_TOPIC: _Keys(
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
    ),
    TRANSACTION_TOPIC: _Keys(
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        "transaction.state.log.segment.bytes",
    ),
}
_FACTOR = 3
"""Of an internal topic, if there are so many brokers at its creation."""
_MIN_ISR = 2
"""Of `__transaction_state` with this factor."""
AUTO_CREATED_MAX = 1000
"""Topics that one request may create by naming them."""
_IS_THERE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""Allowed operations on a topic, as bits of Kafka's AclOperation: all, without an authorizer."""


class Topics:
    """The topics of the cluster.

    Args:
        check_capacity: raises `KafkaError` unless there is capacity for a number of new partitions.
        waits: whether a partition of the topic with this id waits for space.
        config: returns the broker's configuration in force.
        link: creates the topics that this broker needs, at the controller.
        reachable_brokers: the other brokers that share the metadata; None if there can be none.
    """

    def __init__(
        self,
        metadata: MetadataLog,
        random: Random,
        check_capacity: Callable[[int], None],
        waits: Callable[[bytes], bool],
        config: Callable[[], BrokerConfig],
        link: ControllerLink,
        reachable_brokers: ReachableBrokers | None,
    ) -> None:
        self._metadata = metadata
        self._reachable_brokers = reachable_brokers
        self._random = random
        self._check_capacity = check_capacity
        self._waits = waits
        self._config = config
        self._link = link

    def topic_id(self, name: str) -> bytes | None:
        return self._metadata.image.topic_ids.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self._metadata.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, name: str) -> int:
        """Return the number of the topic's partitions, or 0 if it does not exist."""
        topic = self._metadata.image.topic(name)
        return 0 if topic is None else len(topic)

    def names(self) -> Iterable[str]:
        return self._metadata.image.topic_ids

    def version(self) -> int:
        return self._metadata.image.end

    def group_times(self, group_id: str) -> Mapping[str, int]:
        """Return the settings of a consumer group that differ from `GroupConfig`."""
        own = self._metadata.image.configs(ResourceType.GROUP, group_id)
        return group_times(own, self._config().get_int)

    async def ensure(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create topics with the broker's defaults unless they exist, in one change of metadata.

        Return the errors of rejected ones. Raises `KafkaError` if nothing was committed, or if that
        is unknown. Unused internal topics are not created, nor topics beyond `AUTO_CREATED_MAX`: a
        client that finds them unknown asks again.
        """
        topic_ids = self._metadata.image.topic_ids
        new_topics = [
            NewTopic(name)
            for name in dict.fromkeys(names)
            if name not in topic_ids and (name in _MADE_HERE or name not in INTERNAL_TOPICS)
        ]
        capacity = PARTITIONS_PER_REQUEST_MAX // self._config().get_int("num.partitions")
        results = await self._create(new_topics[: min(max(capacity, 1), AUTO_CREATED_MAX)])
        return {
            result.name: result.error
            for result in results
            if result.name is not None and result.error not in _IS_THERE
        }

    async def ensure_group_topic(self) -> None:
        """Create `__consumer_offsets` unless it exists. Raises `KafkaError`."""
        await self._ensure_internal(GROUP_TOPIC)

    async def ensure_transaction_topic(self) -> None:
        """Create `__transaction_state` unless it exists. Raises `KafkaError`."""
        await self._ensure_internal(TRANSACTION_TOPIC)

    async def _ensure_internal(self, name: str) -> None:
        if name in self._metadata.image.topic_ids:
            return
        (result,) = await self._create([NewTopic(name)])
        if result.error not in _IS_THERE:
            raise KafkaError(result.error, result.message or "")

    def with_defaults(self, topic: NewTopic) -> NewTopic:
        """Return a coordinator's topic with its own defaults.

        With the defaults of other topics, retention would delete the coordinator's state.
        """
        if topic.name not in _MADE_HERE:
            return topic
        config = self._config()
        keys = _MADE_HERE[topic.name]
        if not topic.assignments:
            topic = topic._replace(
                partitions=_or_default(topic.partitions, config, keys.partitions),
                replication_factor=self._factor(topic, keys.replication_factor),
            )
        defaults = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.get_int(keys.segment_bytes)),
        }
        if topic.name == TRANSACTION_TOPIC:
            defaults["compression.type"] = "uncompressed"
            defaults["min.insync.replicas"] = self._transactions_min_isr(topic)
            defaults["unclean.leader.election.enable"] = "false"
        said = {key for key, _ in topic.configs}
        unsaid = [(key, value) for key, value in defaults.items() if key not in said]
        return topic._replace(configs=[*topic.configs, *unsaid])

    def _factor(self, topic: NewTopic, key: str) -> int:
        """Return the given factor, else the configured one, else 3 or the number of brokers."""
        if topic.replication_factor != -1 or self._config().is_set(key):
            return _or_default(topic.replication_factor, self._config(), key)
        # A broker that restarts counts: the number of replicas stays for ever.
        factor = max(min(len(self._metadata.image.brokers), _FACTOR), 1)
        if self._reachable_brokers is not None and factor < _FACTOR:
            logger.warning(
                "Topic %s gets %d replicas instead of %d: no more brokers are registered at "
                "its creation",
                topic.name,
                factor,
                _FACTOR,
                extra=event("few_replicas", topic=topic.name, replicas=factor),
            )
        return factor

    def _transactions_min_isr(self, topic: NewTopic) -> str:
        """Return the configured minimum ISR, else 2 of three replicas, as Kafka's default."""
        key = "transaction.state.log.min.isr"
        is_free = topic.replication_factor >= _FACTOR and not self._config().is_set(key)
        return str(_MIN_ISR if is_free else self._config().get_int(key))

    async def _create(self, topics: list[NewTopic]) -> list[TopicResult]:
        """Create topics with the defaults, at the controller. Raises `KafkaError`."""
        if not topics:
            return []
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(name=topic.name, num_partitions=-1, replication_factor=-1)
                for topic in topics
            ],
            timeout_ms=int(PATIENCE_S * 1000),
        )
        response: CreateTopicsResponse = await self._link.carry_out(
            request,
            lambda: self._create_here(topics),
            is_repeatable=True,  # the topics only have to exist
        )
        return [
            TopicResult(
                topic.name, topic.topic_id, ErrorCode(topic.error_code), topic.error_message
            )
            for topic in response.topics
        ]

    async def _create_here(self, topics: list[NewTopic]) -> CreateTopicsResponse:
        results = await self.create([self.with_defaults(topic) for topic in topics])
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(
                    name=topic.name,
                    topic_id=result.topic_id,
                    error_code=result.error,
                    error_message=result.message,
                )
                for topic, result in zip(topics, results, strict=True)
            ]
        )

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Create or reject each topic; return the results in the same order.

        A topic without space for its logs is rejected with KAFKA_STORAGE_ERROR and removed. With
        REQUEST_TIMED_OUT it may exist, and its logs are created once there is space. Raises
        `KafkaError` if nothing was committed, or if that is unknown.
        """
        if not topics:
            return []
        await self._wait_for_reachable_brokers()

        def plan(image: MetadataImage) -> Plan[list[TopicResult]]:
            planned = plan_create_topics(
                image,
                topics,
                broker=self._config(),
                random=self._random,
                unreached=self._unreached(image),
                validate_only=validate_only,
            )
            return self._if_limits_allow(planned)

        return await self._remove_unmade(await self._metadata.submit(plan))

    async def add_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Increase each topic's number of partitions, or reject that. Raises as `create`."""
        await self._wait_for_reachable_brokers()

        def plan(image: MetadataImage) -> Plan[list[TopicResult]]:
            planned = plan_create_partitions(
                image,
                topics,
                random=self._random,
                unreached=self._unreached(image),
                fixed=INTERNAL_TOPICS,
                validate_only=validate_only,
            )
            return self._if_limits_allow(planned)

        return [self._result_if_made(result) for result in await self._metadata.submit(plan)]

    async def _wait_for_reachable_brokers(self) -> None:
        if self._reachable_brokers is not None:
            await self._reachable_brokers.wait(lambda: self._metadata.image)

    def _unreached(self, image: MetadataImage) -> frozenset[int]:
        return (
            frozenset()
            if self._reachable_brokers is None
            else self._reachable_brokers.lacking(image)
        )

    def _if_limits_allow(self, planned: Plan[list[TopicResult]]) -> Plan[list[TopicResult]]:
        """Return the plan, or reject the topics that it would create."""
        try:
            made = sum(
                isinstance(record, PartitionRecord) and self._metadata.broker_id in record.isr
                for record in planned.records
            )
            if made:
                self._check_capacity(made)
        except KafkaError as error:
            refused = [entry if entry.error else _refused(entry, error) for entry in planned.result]
            return Plan((), refused)
        return planned

    async def _remove_unmade(self, results: list[TopicResult]) -> list[TopicResult]:
        """Remove the topics whose logs could not be created."""
        waiting = [entry for entry in results if not entry.error and self._waits(entry.topic_id)]
        if not waiting:
            return results
        gone = [TopicReference(None, entry.topic_id) for entry in waiting]
        try:
            await self._metadata.submit(
                lambda image: plan_delete_topics(image, gone), from_reserve=True
            )
        except KafkaError:
            return [self._result_if_made(entry) for entry in results]
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "there is no space for its logs")
        return [_refused(entry, error) if entry in waiting else entry for entry in results]

    def _result_if_made(self, result: TopicResult) -> TopicResult:
        if result.error or not self._waits(result.topic_id):
            return result
        reason = "it is created; its logs wait for space, and are created once there is some"
        return _refused(result, KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason))


def _refused(result: TopicResult, error: KafkaError) -> TopicResult:
    return TopicResult(result.name, error=error.code, message=error.message)


def _or_default(count: int, config: BrokerConfig, key: str) -> int:
    return config.get_int(key) if count == -1 else count


def log_config(image: MetadataImage, broker: BrokerConfig, topic: str) -> LogConfig:
    """Return the settings of a topic, which need not exist; `broker` is in force."""
    try:
        config = effective_log_config(image, topic, broker)
    except ConfigError as error:
        logger.warning(
            "topic %s runs with the broker's defaults: %s",
            topic,
            error,
            extra=event("topic_config_ignored", topic=topic),
        )
        config = LogConfig.from_values({}, broker)
    # A leader that commits with fewer replicas than the controller counts on would let an ELR
    # without its records lead.
    min_isr = max(config.min_insync_replicas, image.min_isr(topic))
    config = config._replace(min_insync_replicas=min_isr)
    if topic in INTERNAL_TOPICS and any(_is_durable(image, other.name) for other in image.topics):
        return config._replace(durability=FSYNC)
    return config


def changes_internal(old: MetadataImage, new: MetadataImage, names: Iterable[str]) -> bool:
    """Return whether changes of some topics may change the settings of internal topics."""
    return any(_is_durable(old, name) != _is_durable(new, name) for name in names)


def _is_durable(image: MetadataImage, topic: str) -> bool:
    return image.configs(ResourceType.TOPIC, topic).get("durability") == FSYNC
