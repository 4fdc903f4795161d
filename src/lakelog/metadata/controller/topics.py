"""Creation and deletion of topics, and the addition of partitions.

Each topic has its own result: a bad one fails alone, and the others are committed. Error codes
follow Kafka's `ReplicationControlManager`, and rules for names
`org.apache.kafka.common.internals.Topic`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, TypeVar

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.key import ConfigError
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.uuids import ZERO_UUID, random_uuid
from lakelog.metadata.controller.assignment import (
    check_capacity,
    check_manual,
    choose_replicas,
    new_partitions,
)
from lakelog.metadata.image import MetadataImage, TopicImage, metric_name
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import ConfigRecord, Record, ResourceType, TopicRecord, TopicRemoved
from lakelog.runtime.api import Random

_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    problem = None
    if not name:
        problem = "the topic name is empty"
    elif name in (".", ".."):
        problem = "the topic name cannot be '.' or '..'"
    elif len(name) > _LENGTH_MAX:
        problem = f"the topic name has {len(name)} characters; at most {_LENGTH_MAX} are allowed"
    elif not _LEGAL.fullmatch(name):
        problem = f"topic name {name!r}: only ASCII letters, digits, '.', '_' and '-' are allowed"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def check_collision(name: str, metric_names: Mapping[str, str]) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if `name` has the same name in metrics as another topic."""
    other = metric_names.get(metric_name(name), name)
    if other != name:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name} differs from {other} only in '.' and '_'",
        )


T = TypeVar("T")
Configs = tuple[tuple[str, str | None], ...]

_RESERVED = frozenset({"__cluster_metadata"})


class NewTopic(NamedTuple):
    """A topic to create. A count of -1 stands for the broker's default.

    `assignments` are partitions with their replicas and exclude counts. They and `configs` are
    pairs instead of mappings, so that duplicates can be detected.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class TopicResult(NamedTuple):
    """The result for one topic; after an error the counts are -1 and the id is zero."""

    name: str | None
    topic_id: bytes = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    partitions: int = -1
    replication_factor: int = -1


class TopicReference(NamedTuple):
    """A topic by name, or by id with `name` None."""

    name: str | None
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """The new total number of partitions of a topic.

    `assignments` are the replicas of each added partition; None lets the controller choose them.
    """

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


def plan_create_topics(
    image: MetadataImage,
    topics: Sequence[NewTopic],
    *,
    broker: BrokerConfig,
    random: Random,
    unreached: frozenset[int] = frozenset(),
    validate_only: bool = False,
) -> Plan[list[TopicResult]]:
    """Return one result per topic, in the order of the request.

    `broker` supplies the default counts and the settings that a topic inherits. `unreached` brokers
    count as down, see `assignment`. Raises nothing for a rejected topic: its result has the error.
    """
    records: list[Record] = []
    results = []
    repeated = _repeated(topic.name for topic in topics)
    checked = cache(partial(_checked_configs, broker=broker))
    made = 0
    for topic in topics:
        try:
            if topic.name in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request names {topic.name} twice")
            own = _create(image, topic, checked, broker, random, unreached)
            made += len(own.replicas)
            check_capacity(made)
        except KafkaError as error:
            results.append(TopicResult(topic.name, error=error.code, message=error.message))
            continue
        image = image.apply_all(own.records, image.end)
        records += own.records
        results.append(own.result(topic.name))
    return Plan(() if validate_only else tuple(records), results)


class _Creation(NamedTuple):
    topic_id: bytes
    replicas: list[tuple[int, ...]]
    records: list[Record]

    def result(self, name: str) -> TopicResult:
        return TopicResult(
            name,
            self.topic_id,
            partitions=len(self.replicas),
            replication_factor=len(self.replicas[0]),
        )


def _create(
    image: MetadataImage,
    topic: NewTopic,
    checked: Callable[[Configs], dict[str, str]],
    broker: BrokerConfig,
    random: Random,
    unreached: frozenset[int],
) -> _Creation:
    """`checked` is `_checked_configs`, cached for topics with equal settings."""
    check_topic_name(topic.name)
    if topic.name in _RESERVED:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} is reserved")
    if topic.name in image.topic_ids:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name} already exists")
    check_collision(topic.name, image.metric_names)
    configs = checked(tuple(topic.configs))
    replicas = _initial_replicas(image, topic, broker, random, unreached)
    topic_id = random_uuid(random)
    records: list[Record] = [TopicRecord(topic.name, topic_id)]
    records += new_partitions(image, topic_id, replicas, unreached=unreached)
    records += [
        ConfigRecord(ResourceType.TOPIC, topic.name, key, value)
        for key, value in sorted(configs.items())
    ]
    return _Creation(topic_id, replicas, records)


def _checked_configs(configs: Configs, broker: BrokerConfig) -> dict[str, str]:
    """Return the settings. Raises INVALID_CONFIG, also for two different values of one key.

    Kafka uses the last of several values.
    """
    values: dict[str, str] = {}
    for key, value in configs:
        if value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} has no value")
        if values.setdefault(key, value) != value:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{key} has two values, {values[key]!r} and {value!r}"
            )
    try:
        LogConfig.from_values(values, broker)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return values


def _initial_replicas(
    image: MetadataImage,
    topic: NewTopic,
    broker: BrokerConfig,
    random: Random,
    unreached: frozenset[int],
) -> list[tuple[int, ...]]:
    if topic.assignments:
        if topic.partitions != -1 or topic.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "a topic with assigned replicas must have both counts -1",
            )
        check_capacity(len(topic.assignments))
        assignments = dict(topic.assignments)
        if len(assignments) < len(topic.assignments):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "the request assigns replicas to a partition twice",
            )
        return check_manual(image, assignments, unreached=unreached)
    partitions, factor = topic.partitions, topic.replication_factor
    if factor < -1 or factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor} is invalid; use a positive number or -1",
        )
    if partitions < -1 or partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"number of partitions {partitions} is invalid; use a positive number or -1",
        )
    if partitions == -1:
        partitions = broker.get_int("num.partitions")
    if factor == -1:
        factor = broker.get_int("default.replication.factor")
    check_capacity(partitions)
    start = random.below(max(len(image.brokers), 1))
    return choose_replicas(image, partitions, factor, start, unreached)


def plan_delete_topics(
    image: MetadataImage, topics: Sequence[TopicReference], *, enabled: bool = True
) -> Plan[list[TopicResult]]:
    """Return one result per topic; `enabled` is `delete.topic.enable`.

    The group coordinator removes the committed offsets of deleted topics. Raises nothing for a
    rejected topic: its result has the error.
    """
    records: list[Record] = []
    results = []
    repeated = _repeated(existing.topic_id for topic in topics if (existing := _find(image, topic)))
    for topic in topics:
        try:
            if not enabled:
                raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
            existing = _required(image, topic)
            if existing.topic_id in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names a topic twice")
        except KafkaError as error:
            results.append(TopicResult(topic.name, topic.topic_id, error.code, error.message))
            continue
        records.append(TopicRemoved(existing.topic_id))
        results.append(TopicResult(existing.name, existing.topic_id, partitions=len(existing)))
    return Plan(tuple(records), results)


def _find(image: MetadataImage, topic: TopicReference) -> TopicImage | None:
    if topic.name is None:
        return image.topic_by_id(topic.topic_id)
    return image.topic(topic.name)


def _required(image: MetadataImage, topic: TopicReference) -> TopicImage:
    if (topic.name is None) == (topic.topic_id == ZERO_UUID):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "a topic needs either a name or an id, not both"
        )
    existing = _find(image, topic)
    if existing is None and topic.name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    if existing is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {topic.name}")
    return existing


def plan_create_partitions(
    image: MetadataImage,
    topics: Sequence[MorePartitions],
    *,
    random: Random,
    unreached: frozenset[int] = frozenset(),
    fixed: Container[str] = (),
    validate_only: bool = False,
) -> Plan[list[TopicResult]]:
    """Return one result per topic, in the order of the request, with the new total of partitions.

    `unreached` brokers count as down, see `assignment`. The number of partitions of `fixed` topics
    cannot change: their contents are located by a hash modulo this number. Raises nothing for a
    rejected topic: its result has the error (KIP-195).
    """
    records: list[Record] = []
    results = []
    repeated = _repeated(topic.name for topic in topics)
    made = 0
    for topic in topics:
        try:
            if topic.name in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request names {topic.name} twice")
            existing = _required(image, TopicReference(topic.name))
            if topic.name in fixed:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"{topic.name} keeps its {len(existing)} partitions: its contents are located "
                    "by this number",
                )
            made += max(topic.count - len(existing), 0)
            check_capacity(made)
            replicas = _additional_replicas(image, existing, topic, random, unreached)
        except KafkaError as error:
            results.append(TopicResult(topic.name, error=error.code, message=error.message))
            continue
        records += new_partitions(image, existing.topic_id, replicas, len(existing), unreached)
        results.append(TopicResult(topic.name, existing.topic_id, partitions=topic.count))
    return Plan(() if validate_only else tuple(records), results)


def _additional_replicas(
    image: MetadataImage,
    existing: TopicImage,
    topic: MorePartitions,
    random: Random,
    unreached: frozenset[int],
) -> list[tuple[int, ...]]:
    """Return the replicas of the added partitions, as many as partition 0 has."""
    current, added = len(existing), topic.count - len(existing)
    if added <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {existing.name} has {current} partitions; {topic.count} is not more",
        )
    factor = len(existing.partitions[0].replicas)
    if topic.assignments is None:
        start = random.below(max(len(image.brokers), 1))
        return choose_replicas(image, added, factor, start, unreached)
    if len(topic.assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the request adds {added} partitions but assigns replicas to {len(topic.assignments)}",
        )
    numbered = dict(enumerate(topic.assignments, current))
    replicas = check_manual(image, numbered, current, unreached)
    if len(replicas[0]) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partitions of topic {existing.name} have {factor} replicas, not {len(replicas[0])}",
        )
    return replicas


def _repeated(items: Iterable[T]) -> set[T]:
    return {item for item, count in Counter(items).items() if count > 1}
