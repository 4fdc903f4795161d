"""The settings of the logs of each topic.

Internal topics hold decisions of coordinators and committed offsets, which have to survive every
failure that the records of their topics survive. So if any topic has `durability=fsync`, internal
topics have it too, although the broker's default is the page cache.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.key import ConfigError
from lakelog.base.config.keys.topics import FSYNC
from lakelog.base.config.log_config import LogConfig
from lakelog.base.events import event
from lakelog.metadata.describe_configs import effective_log_config
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import ResourceType
from lakelog.server.topics.topics import INTERNAL_TOPICS

logger = logging.getLogger(__name__)


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
