"""CreatePartitions (37): increases the number of a topic's partitions; it never decreases.

Apache Kafka lets internal topics grow too, and then looks for groups in the wrong partition
(KAFKA-14418); lakelog rejects that.
"""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.topics import MorePartitions
from lakelog.protocol.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions; a `KafkaError` of the whole change is the error of each topic."""
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
        return _failed(context, request, error)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=topic.name, error_code=result.error, error_message=result.message
            )
            for topic, result in zip(increases, results, strict=True)
        ]
    )


def _failed(
    context: Context, request: CreatePartitionsRequest, error: KafkaError
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            for topic in request.topics
        ]
    )


API = ServedApi(
    CreatePartitionsRequest,
    handle,
    done="With and without assignments.",
    missing="Internal topics, whose number of partitions is fixed.",
    by_controller=_failed,
)
