"""Log lines for changes of the metadata that operators look for: topics and settings."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping

from lakelog.base.config.broker_config import BROKER_CONFIGS
from lakelog.base.events import event
from lakelog.base.uuids import encode_uuid
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    Record,
    ResourceType,
    TopicRecord,
    TopicRemoved,
)
from lakelog.server.event_log.rate_limited import one_line

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
