"""CreateTopics (19): creates or rejects each topic on its own.

From version 5 on the response shows the new topic's counts and its whole configuration.
"""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.topics import NewTopic, TopicResult
from lakelog.metadata.describe_configs import ConfigSource, describe_topic
from lakelog.protocol.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi

_CONFIGS_SINCE = 5
_Shown = dict[tuple[tuple[str, str | None], ...], list[CreatableTopicConfigs]]
"""The configuration in the response, shared by topics with the same settings."""


async def handle(
    broker: Broker, context: Context, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create topics; a `KafkaError` of the whole change is the error of each topic."""
    new_topics = [broker.topics.with_defaults(_new_topic(topic)) for topic in request.topics]
    try:
        results = await broker.topics.create(new_topics, validate_only=request.validate_only)
    except KafkaError as error:
        return _failed(context, request, error)
    shown: _Shown = {}
    return CreateTopicsResponse(
        topics=[
            _response(broker, topic, result, context.version, shown)
            for topic, result in zip(new_topics, results, strict=True)
        ]
    )


def _failed(
    context: Context, request: CreateTopicsRequest, error: KafkaError
) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            for topic in request.topics
        ]
    )


API = ServedApi(
    CreateTopicsRequest,
    handle,
    done="Counts, assignments, configurations, validation only.",
    missing="At most 10,000 partitions in one request.",
    by_controller=_failed,
)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(entry.partition_index, entry.broker_ids) for entry in topic.assignments],
        configs=[(config.name, config.value) for config in topic.configs],
    )


def _response(
    broker: Broker, topic: NewTopic, result: TopicResult, version: int, shown: _Shown
) -> CreatableTopicResult:
    response = CreatableTopicResult(
        name=topic.name,
        topic_id=result.topic_id,
        error_code=result.error,
        error_message=result.message,
    )
    if result.error or version < _CONFIGS_SINCE:
        return response
    response.num_partitions = result.partitions
    response.replication_factor = result.replication_factor
    settings = tuple(topic.configs)
    if settings not in shown:
        shown[settings] = _configs(broker, topic)
    response.configs = shown[settings]
    return response


def _configs(broker: Broker, topic: NewTopic) -> list[CreatableTopicConfigs]:
    given = dict(topic.configs)
    return [
        CreatableTopicConfigs(
            name=config.name,
            value=given.get(config.name, config.value),
            config_source=ConfigSource.TOPIC if config.name in given else config.source,
            is_sensitive=config.sensitive,
        )
        for config in describe_topic(broker.image, topic.name, broker.config)
    ]
