"""Topics: creation, more partitions, deletion, and deletion of the records at their start."""

from __future__ import annotations

import logging

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.metadata.controller.topics import (
    MorePartitions,
    NewTopic,
    TopicReference,
    TopicResult,
    plan_delete_topics,
)
from lakelog.metadata.describe_configs import ConfigSource, describe_topic
from lakelog.protocol import topics as messages
from lakelog.replica.partition import Partition
from lakelog.server.appends.acknowledgement import Deletion, beginning, completed
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi
from lakelog.server.topics.topics import INTERNAL_TOPICS

_CONFIGS_SINCE = 5
_Shown = dict[tuple[tuple[str, str | None], ...], list[messages.CreatableTopicConfigs]]
"""The configuration in the response, shared by topics with the same settings."""
_IDS_SINCE = 6
_DISABLED_CODE_SINCE = 3
logger = logging.getLogger(__name__)
_HIGH_WATERMARK = -1
_UNKNOWN = -1


async def create_topics(
    broker: Broker, context: Context, request: messages.CreateTopicsRequest
) -> messages.CreateTopicsResponse:
    """CreateTopics (19): creates or rejects each topic on its own.

    From version 5 on the response shows the new topic's counts and its whole configuration.

    A `KafkaError` of the whole change is the error of each topic.
    """
    new_topics = [broker.topics.with_defaults(_new_topic(topic)) for topic in request.topics]
    try:
        results = await broker.topics.create(new_topics, validate_only=request.validate_only)
    except KafkaError as error:
        return _creation_failed(context, request, error)
    shown: _Shown = {}
    return messages.CreateTopicsResponse(
        topics=[
            _created(broker, topic, result, context.version, shown)
            for topic, result in zip(new_topics, results, strict=True)
        ]
    )


def _creation_failed(
    context: Context, request: messages.CreateTopicsRequest, error: KafkaError
) -> messages.CreateTopicsResponse:
    return messages.CreateTopicsResponse(
        topics=[
            messages.CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            for topic in request.topics
        ]
    )


def _new_topic(topic: messages.CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(entry.partition_index, entry.broker_ids) for entry in topic.assignments],
        configs=[(config.name, config.value) for config in topic.configs],
    )


def _created(
    broker: Broker, topic: NewTopic, result: TopicResult, version: int, shown: _Shown
) -> messages.CreatableTopicResult:
    response = messages.CreatableTopicResult(
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
        shown[settings] = _created_configs(broker, topic)
    response.configs = shown[settings]
    return response


def _created_configs(broker: Broker, topic: NewTopic) -> list[messages.CreatableTopicConfigs]:
    given = dict(topic.configs)
    return [
        messages.CreatableTopicConfigs(
            name=config.name,
            value=given.get(config.name, config.value),
            config_source=ConfigSource.TOPIC if config.name in given else config.source,
            is_sensitive=config.sensitive,
        )
        for config in describe_topic(broker.image, topic.name, broker.config)
    ]


async def create_partitions(
    broker: Broker, context: Context, request: messages.CreatePartitionsRequest
) -> messages.CreatePartitionsResponse:
    """CreatePartitions (37): increases the number of a topic's partitions; it never decreases.

    Apache Kafka lets internal topics grow too, and then looks for groups in the wrong partition
    (KAFKA-14418); lakelog rejects that.

    A `KafkaError` of the whole change is the error of each topic.
    """
    increases = [
        MorePartitions(
            topic.name,
            topic.count,
            None
            if topic.assignments is None
            else [assignment.broker_ids for assignment in topic.assignments],
        )
        for topic in request.topics
    ]
    try:
        results = await broker.topics.add_partitions(increases, validate_only=request.validate_only)
    except KafkaError as error:
        return _increase_failed(context, request, error)
    return messages.CreatePartitionsResponse(
        results=[
            messages.CreatePartitionsTopicResult(
                name=topic.name, error_code=result.error, error_message=result.message
            )
            for topic, result in zip(increases, results, strict=True)
        ]
    )


def _increase_failed(
    context: Context, request: messages.CreatePartitionsRequest, error: KafkaError
) -> messages.CreatePartitionsResponse:
    return messages.CreatePartitionsResponse(
        results=[
            messages.CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            for topic in request.topics
        ]
    )


async def delete_topics(
    broker: Broker, context: Context, request: messages.DeleteTopicsRequest
) -> messages.DeleteTopicsResponse:
    """DeleteTopics (20): deletes topics by name, from version 6 on also by id.

    The change of metadata may use the disk's reserve: it frees space.

    A `KafkaError` of the whole change is the error of each topic.
    """
    references = _references(context, request)
    enabled = broker.config.get_bool("delete.topic.enable")
    try:
        results = await broker.metadata.submit(
            lambda image: plan_delete_topics(image, references, enabled=enabled), from_reserve=True
        )
    except KafkaError as error:
        return _deletion_failed(context, request, error)
    return _deletion_response(context, results)


def _references(context: Context, request: messages.DeleteTopicsRequest) -> list[TopicReference]:
    if context.version >= _IDS_SINCE:
        return [TopicReference(topic.name, topic.topic_id) for topic in request.topics]
    return [TopicReference(name) for name in request.topic_names]


def _deletion_failed(
    context: Context, request: messages.DeleteTopicsRequest, error: KafkaError
) -> messages.DeleteTopicsResponse:
    results = [
        TopicResult(topic.name, topic.topic_id, error.code, error.message)
        for topic in _references(context, request)
    ]
    return _deletion_response(context, results)


def _deletion_response(
    context: Context, results: list[TopicResult]
) -> messages.DeleteTopicsResponse:
    return messages.DeleteTopicsResponse(
        responses=[
            messages.DeletableTopicResult(
                name=result.name,
                topic_id=result.topic_id,
                error_code=_deletion_code(result.error, context.version),
                error_message=result.message,
            )
            for result in results
        ]
    )


def _deletion_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code as clients of `version` know it: older ones lack the error."""
    if code is ErrorCode.TOPIC_DELETION_DISABLED and version < _DISABLED_CODE_SINCE:
        return ErrorCode.INVALID_REQUEST
    return code


async def delete_records(
    broker: Broker, context: Context, request: messages.DeleteRecordsRequest
) -> messages.DeleteRecordsResponse:
    """DeleteRecords (21): advances log start offsets; version 2 differs in encoding only.

    Records before the offset cannot be read any more; the next retention run deletes their
    segments. A new leader first learns from its followers which records are committed: acknowledged
    ones are never out of range. The response waits until the new offsets are durable; concurrent
    requests share one checkpoint. So deleted records come back neither after a kill nor after a
    power failure. Then it waits until all live followers have deleted the records, too (KIP-107): a
    new leader does not have them either. Topics that are only compacted reject the request, because
    they delete records by key. A topic with a table (`table.enable`) rejects it for records that
    are not archived yet, unless `force` is set.

    If they cannot be made durable, the partitions have KAFKA_STORAGE_ERROR and low watermark -1.
    Partitions with followers that take longer than the request allows have REQUEST_TIMED_OUT: their
    records are deleted here, and will be there. So have partitions whose new leader has not learned
    in that time whether the records are committed: it has deleted nothing.
    """
    deadline = broker.clock.monotonic() + request.timeout_ms / 1000
    await _begun(broker, request, deadline)
    topics = [
        messages.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _delete_from(broker, topic.name, entry, force=request.force)
                for entry in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    results = [result for topic in topics for result in topic.partitions if not result.error_code]
    if results and not await broker.checkpointed():
        for result in results:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            result.low_watermark = _UNKNOWN
    _log_durable(broker, topics)
    await _replicated(broker, topics, deadline)
    return messages.DeleteRecordsResponse(topics=topics)


async def _begun(broker: Broker, request: messages.DeleteRecordsRequest, deadline: float) -> None:
    """Wait where a new leader does not know yet whether the records are committed."""
    ends = [
        (broker.partitions.get(topic.name, entry.partition_index), entry.offset)
        for topic in request.topics
        for entry in topic.partitions
    ]
    waits = [
        beginning(partition)
        for partition, offset in ends
        if partition is not None and not _is_committed(partition, offset)
    ]
    await completed(waits, broker.purgatory, broker.clock, deadline)


def _is_committed(partition: Partition, offset: int) -> bool:
    return 0 <= offset <= partition.watermark.offset


def _delete_from(
    broker: Broker, topic: str, entry: messages.DeleteRecordsPartition, *, force: bool
) -> messages.DeleteRecordsPartitionResult:
    index = entry.partition_index
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        partition = broker.partitions.leader(topic, index)
        if not _is_committed(partition, entry.offset):
            beginning(partition).check()
        before = partition.watermark.offset if entry.offset == _HIGH_WATERMARK else entry.offset
        start = partition.log.log_start_offset
        low = partition.delete_records(before, force=force)
        if low > start:
            broker.noted_starts.setdefault(partition, start)
    except KafkaError as error:
        return messages.DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_UNKNOWN, error_code=error.code
        )
    return messages.DeleteRecordsPartitionResult(partition_index=index, low_watermark=low)


async def _replicated(
    broker: Broker, topics: list[messages.DeleteRecordsTopicResult], deadline: float
) -> None:
    """Wait until the live followers have deleted the records, and set the errors of the others."""

    def live() -> frozenset[int]:
        image = broker.image
        return frozenset(image.brokers) - image.fenced

    deletions = [
        (result, Deletion(partition, result.low_watermark, partition.leader_epoch, live))
        for topic in topics
        for result in topic.partitions
        if not result.error_code
        and (partition := broker.partitions.get(topic.name, result.partition_index)) is not None
    ]
    waits = [deletion for _, deletion in deletions]
    await completed(waits, broker.purgatory, broker.clock, deadline)
    for result, deletion in deletions:
        try:
            deletion.check()
        except KafkaError as error:
            result.error_code, result.low_watermark = error.code, _UNKNOWN


def _log_durable(broker: Broker, topics: list[messages.DeleteRecordsTopicResult]) -> None:
    """Log each deletion that succeeded, possibly after failed attempts."""
    for topic in topics:
        for result in topic.partitions:
            partition = broker.partitions.get(topic.name, result.partition_index)
            start = broker.noted_starts.get(partition) if partition is not None else None
            if partition is None or start is None or result.low_watermark <= start:
                continue
            if partition.log.log_start_offset > result.low_watermark:
                broker.noted_starts[partition] = result.low_watermark
            else:
                del broker.noted_starts[partition]
            _log_deletion(topic.name, result, start)
    for partition in [partition for partition in broker.noted_starts if partition.is_retired]:
        del broker.noted_starts[partition]


def _log_deletion(topic: str, result: messages.DeleteRecordsPartitionResult, start: int) -> None:
    logger.info(
        "Deleted records of %s-%d from offset %d to before %d",
        topic,
        result.partition_index,
        start,
        result.low_watermark,
        extra=event(
            "records_deleted",
            topic=topic,
            partition=result.partition_index,
            log_start_offset=result.low_watermark,
            log_start_offset_before=start,
        ),
    )


APIS = (
    ServedApi(
        messages.CreateTopicsRequest,
        create_topics,
        done="Counts, assignments, configurations, validation only.",
        missing="At most 10,000 partitions in one request.",
        by_controller=_creation_failed,
    ),
    ServedApi(
        messages.CreatePartitionsRequest,
        create_partitions,
        done="With and without assignments.",
        missing="Internal topics, whose number of partitions is fixed.",
        by_controller=_increase_failed,
    ),
    ServedApi(
        messages.DeleteTopicsRequest,
        delete_topics,
        done="By name and by id.",
        by_controller=_deletion_failed,
    ),
    ServedApi(
        messages.DeleteRecordsRequest,
        delete_records,
        done="All; the response is sent when the change is durable on all live replicas.",
    ),
)
