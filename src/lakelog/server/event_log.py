"""Log lines about changes of the metadata: topics, settings, leaders, and copies of partitions.

An election has a line if this broker leads partitions from now on, or not any more, with the cause:
one line for a change of the metadata, however many partitions it moves.

A failed copy has one line when it begins, and one at the end. For a moment after every election,
leaders and followers know different leader epochs. Such a failure has a line only if it lasts.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from lakelog.base.config.broker_config import BROKER_CONFIGS
from lakelog.base.errors import ErrorCode
from lakelog.base.events import event
from lakelog.base.uuids import encode_uuid
from lakelog.metadata.failover import NO_LEADER, PartitionImage, has_eligible
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerLost,
    BrokerReadOnly,
    BrokerUnfenced,
    ConfigRecord,
    PartitionRecord,
    Record,
    ResourceType,
    TopicRecord,
    TopicRemoved,
)
from lakelog.replica.partition import Partition
from lakelog.runtime.api import Clock
from lakelog.server.log_limits import LogWindow, left_out_text, one_line

logger = logging.getLogger(__name__)

_HIDDEN = "[hidden]"
_ROUTINE = {"table.archived.offsets"}
"""Topic keys whose changes are no decision of a user."""


def log_changes(old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]) -> None:
    """Log topics that were created, deleted or got partitions, and settings that changed.

    Settings of a topic that the same `records` create are part of its line. Values of sensitive
    keys are hidden, as in Kafka's DescribeConfigs.

    Args:
        old: the image before `records`.
        new: the image after them.
    """
    created = {record.name for record in records if isinstance(record, TopicRecord)}
    for name in sorted(created):
        _log_creation(new, name)
    for topic_id in [record.topic_id for record in records if isinstance(record, TopicRemoved)]:
        _log_deletion(old, topic_id)
    grown = {record.topic_id for record in records if isinstance(record, PartitionRecord)}
    for topic_id in sorted(grown):
        _log_growth(old, new, topic_id)
    changes: dict[tuple[int, str], dict[str, str | None]] = {}
    for record in records:
        if isinstance(record, ConfigRecord) and not _is_of(record, created):
            resource = record.resource_type, record.resource_name
            changes.setdefault(resource, {})[record.key] = record.value
    for (kind, name), values in changes.items():
        _log_config(kind, name, values)


def _is_of(record: ConfigRecord, topics: Container[str]) -> bool:
    return record.resource_type == ResourceType.TOPIC and record.resource_name in topics


def _log_creation(image: MetadataImage, name: str) -> None:
    topic = image.topic(name)
    if topic is None:
        return
    configs = dict(image.configs(ResourceType.TOPIC, name))
    logger.info(
        "Created topic '%s' with %d partition%s",
        name,
        len(topic),
        "" if len(topic) == 1 else "s",
        extra=event(
            "topic_created",
            topic=name,
            topic_id=encode_uuid(topic.topic_id),
            partitions=len(topic),
            configs=configs,
        ),
    )


def _log_deletion(image: MetadataImage, topic_id: bytes) -> None:
    topic = image.topic_by_id(topic_id)
    if topic is not None:
        logger.info(
            "Deleted topic '%s'",
            topic.name,
            extra=event("topic_deleted", topic=topic.name, topic_id=encode_uuid(topic_id)),
        )


def _log_growth(old: MetadataImage, new: MetadataImage, topic_id: bytes) -> None:
    before, after = old.topic_by_id(topic_id), new.topic_by_id(topic_id)
    if before is not None and after is not None and len(after) > len(before):
        logger.info(
            "Topic '%s' has %d partitions now, %d before",
            after.name,
            len(after),
            len(before),
            extra=event(
                "partitions_added",
                topic=after.name,
                partitions=len(after),
                partitions_before=len(before),
            ),
        )


def _log_config(kind: int, name: str, values: Mapping[str, str | None]) -> None:
    resource = ResourceType(kind).name.lower()
    shown = {key: _shown(key, value) for key, value in values.items()}
    whose = f"{resource} '{one_line(name)}'" if name else "all brokers"
    text = ", ".join(
        f"{key}={'default' if value is None else value}" for key, value in shown.items()
    )
    if values.keys() == _ROUTINE:  # with each commit of the topic's archive
        logger.debug(
            "The archive of %s has advanced",
            whose,
            extra=event("archive_advanced", topic=name, configs=shown),
        )
        return
    logger.info(
        "Changed the configuration of %s: %s",
        whose,
        one_line(text),
        extra=event("config_changed", resource=resource, resource_name=name or None, configs=shown),
    )


def _shown(key: str, value: str | None) -> str | None:
    config = BROKER_CONFIGS.get(key)
    return _HIDDEN if value is not None and config is not None and config.sensitive else value


_NAMED_MAX = 3


def log_elections(
    node_id: int, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
) -> None:
    """Log the changes of leaders from one image to the next that concern broker `node_id`.

    Partitions without a leader concern every broker. New topics have no line here.
    """
    gained, lost, leaderless, stuck = [], [], [], []
    for name, before, after in _changed(old, new):
        log_name = f"{name}-{after.partition}"
        if _is_stuck(after) and not _is_stuck(before):
            stuck.append(log_name)
        if after.leader == before.leader:
            continue
        if after.leader == node_id:
            gained.append(log_name)
        elif before.leader == node_id:
            lost.append(log_name)
        if after.leader == NO_LEADER and not _is_stuck(after):
            leaderless.append(log_name)
    cause = _cause(records)
    if gained or lost:
        logger.info(
            "%s: this broker leads %s",
            cause,
            " and ".join(_gained_and_lost(gained, lost)),
            extra=event("leaders_elected", reason=cause, gained=len(gained), lost=len(lost)),
        )
    _log_leaderless(cause, leaderless, stuck)


def log_leaderless(node_id: int, image: MetadataImage) -> None:
    """Log the partitions without a leader that a broker finds at its start.

    Those are left out that it will lead as soon as it serves.
    """
    leaderless, stuck = [], []
    for topic in sorted(image.topics, key=lambda topic: topic.name):
        for index, partition in sorted(topic.partitions.items()):
            if _is_stuck(partition):
                stuck.append(f"{topic.name}-{index}")
            elif partition.leader == NO_LEADER and not _may_lead(node_id, partition):
                leaderless.append(f"{topic.name}-{index}")
    _log_leaderless("At the start", leaderless, stuck)


def _may_lead(node_id: int, partition: PartitionImage) -> bool:
    return node_id in (*partition.isr, *partition.elr) or partition.replicas == (node_id,)


def _log_leaderless(cause: str, leaderless: list[str], stuck: list[str]) -> None:
    if leaderless:
        logger.warning(
            "%s: %s cannot be written or read until an eligible replica is back",
            cause,
            _named(leaderless),
            extra=event("partitions_leaderless", reason=cause, partitions=len(leaderless)),
        )
    if stuck:
        logger.error(
            "%s: no replica of %s is known to have every acknowledged record, and none is elected; "
            "to accept a loss, use `lakelog topic elect --unclean`",
            cause,
            _named(stuck),
            extra=event("eligible_replicas_lost", reason=cause, partitions=len(stuck)),
        )


def _is_stuck(partition: PartitionImage) -> bool:
    """Return whether only an unclean election gives the partition a leader."""
    return partition.leader == NO_LEADER and not has_eligible(partition)


def _changed(
    old: MetadataImage, new: MetadataImage
) -> Iterator[tuple[str, PartitionImage, PartitionImage]]:
    """Yield the partitions of both images that differ, in the order of topics."""
    if new.topics_by_id is old.topics_by_id:
        return
    for topic in sorted(new.topics, key=lambda topic: topic.name):
        former = old.topic_by_id(topic.topic_id)
        if former is None or former is topic:
            continue
        for index in range(len(former)):
            before, after = former.partition(index), topic.partition(index)
            if before is not None and after is not None and before is not after:
                yield topic.name, before, after


def _cause(records: tuple[Record, ...]) -> str:
    fenced = [record.broker_id for record in records if isinstance(record, BrokerFenced)]
    if fenced:
        return f"{_brokers(fenced)} fenced"
    lost = [record.broker_id for record in records if isinstance(record, BrokerLost)]
    if lost:
        return f"Broker {lost[0]} may have lost records"
    unfenced = [record.broker_id for record in records if isinstance(record, BrokerUnfenced)]
    if unfenced:
        return f"{_brokers(unfenced)} unfenced"
    stuck = [record.broker_id for record in records if isinstance(record, BrokerReadOnly)]
    if stuck:
        return f"Broker {stuck[0]} cannot write"
    return "Leaders were elected"


def _brokers(node_ids: list[int]) -> str:
    if len(node_ids) == 1:
        return f"Broker {node_ids[0]} was"
    return f"Brokers {', '.join(map(str, node_ids))} were"


def _gained_and_lost(gained: list[str], lost: list[str]) -> Iterator[str]:
    if gained:
        yield _named(gained)
    if lost:
        yield f"no longer {_named(lost)}"


def _named(log_names: list[str]) -> str:
    shown = ", ".join(log_names[:_NAMED_MAX])
    more = len(log_names) - _NAMED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


LASTS_S = 5.0
_PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@dataclass(slots=True)
class _Failure:
    since: float
    has_line: bool = False


class FetchFailures:
    """The partitions that cannot be copied from one leader."""

    def __init__(self, leader_id: int, clock: Clock) -> None:
        self._leader_id = leader_id
        self._clock = clock
        self._window = LogWindow(clock)
        self._failures: dict[Partition, _Failure] = {}

    def forget(self, partition: Partition) -> None:
        """Forget a partition that is not copied from this leader any more."""
        self._failures.pop(partition, None)

    def succeeded(self, partition: Partition) -> None:
        """Note that the partition is copied."""
        failure = self._failures.pop(partition, None)
        if failure is not None and failure.has_line:
            topic, index = partition.topic, partition.index
            logger.info(
                "partition %s-%d: copied from broker %d again",
                topic,
                index,
                self._leader_id,
                extra=event(
                    "replica_fetch_resumed", topic=topic, partition=index, leader=self._leader_id
                ),
            )

    def failed(self, partition: Partition, error: Exception, *, is_bug: bool = False) -> None:
        """Note that the partition could not be copied; the line of a bug has a traceback."""
        now = self._clock.monotonic()
        failure = self._failures.setdefault(partition, _Failure(now))
        is_passing = getattr(error, "code", None) in _PASSING and now - failure.since < LASTS_S
        if failure.has_line or is_passing:
            return
        left_out = self._window.admit()
        if left_out is None:
            return
        failure.has_line = True
        topic, index = partition.topic, partition.index
        logger.warning(
            "partition %s-%d: cannot copy it from broker %d: %s%s",
            topic,
            index,
            self._leader_id,
            repr(error) if is_bug else error,
            left_out_text(left_out),
            exc_info=error if is_bug else None,
            extra=event(
                "replica_fetch_failed", topic=topic, partition=index, leader=self._leader_id
            ),
        )
