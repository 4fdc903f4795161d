"""The topics of the cluster as the broker's parts ask for them, and those made without being asked.

A topic comes into being by itself in two cases: a client asked for its metadata and both sides
allow that, or the broker needs one of its internal topics.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.broker_config import BrokerConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.metadata.controller.topics import NewTopic, plan_create_topics
from lakelog.metadata.log import MetadataLog
from lakelog.runtime.api import Random

INTERNAL_TOPICS = frozenset({GROUP_TOPIC, "__transaction_state", "__share_group_state"})

TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""What may be done to a topic, as bits of Kafka's AclOperation: all, without an authorizer."""


class Topics:
    """`config` gives the broker's configuration in force."""

    def __init__(
        self, metadata: MetadataLog, random: Random, config: Callable[[], BrokerConfig]
    ) -> None:
        self._metadata = metadata
        self._random = random
        self._config = config

    def topic_id(self, name: str) -> bytes | None:
        return self._metadata.image.topic_ids.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self._metadata.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, name: str) -> int:
        """0 if there is no such topic."""
        topic = self._metadata.image.topic(name)
        return 0 if topic is None else len(topic)

    async def ensure(self, name: str) -> None:
        """Creates a topic with the broker's defaults unless it exists.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION for a name that cannot be, or what kept the
                metadata log from being written.
        """
        if name == GROUP_TOPIC:
            await self.ensure_group_topic()
        elif name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is not in use")
        elif name not in self._metadata.image.topic_ids:
            await self._create(NewTopic(name))

    async def ensure_group_topic(self) -> None:
        """Creates `__consumer_offsets` as configured, unless it exists."""
        if GROUP_TOPIC in self._metadata.image.topic_ids:
            return
        config = self._config()
        await self._create(
            NewTopic(
                GROUP_TOPIC,
                partitions=config.get_int("offsets.topic.num.partitions"),
                replication_factor=config.get_int("offsets.topic.replication.factor"),
                configs=[
                    ("cleanup.policy", "compact"),
                    ("compression.type", "producer"),
                    ("segment.bytes", str(config.get_int("offsets.topic.segment.bytes"))),
                ],
            )
        )

    async def _create(self, topic: NewTopic) -> None:
        (result,) = await self._metadata.submit(
            lambda image: plan_create_topics(
                image, [topic], broker=self._config(), random=self._random
            )
        )
        if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(result.error, result.message or "")
