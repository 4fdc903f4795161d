"""AlterPartitionReassignments (45): moves partitions to other brokers (KIP-455).

A move to brokers that hold the partition already is done at once; other moves are rejected
(metadata/controller/reassignments.py).
"""

from __future__ import annotations

from itertools import groupby

from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.assignment import (
    Reassignment,
    ReassignmentResult,
    plan_reassignments,
)
from lakelog.protocol.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Decide each move; a `KafkaError` of the whole change is the error of the response."""
    allowed = request.allow_replication_factor_change
    reassignments = [
        Reassignment(topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        results = await broker.metadata.submit(
            lambda image: plan_reassignments(
                image, reassignments, allow_replication_factor_change=allowed
            )
        )
    except KafkaError as error:
        return _failed(context, request, error)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed, responses=_by_topic(results)
    )


def _failed(
    context: Context, request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error.code,
        error_message=error.message,
    )


API = ServedApi(
    AlterPartitionReassignmentsRequest,
    handle,
    done="Changes of the order of replicas, completed at once.",
    missing="Moves to brokers that hold no replica of the partition.",
    by_controller=_failed,
)


def _by_topic(results: list[ReassignmentResult]) -> list[ReassignableTopicResponse]:
    return [
        ReassignableTopicResponse(
            name=topic,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=result.partition,
                    error_code=result.error,
                    error_message=result.message,
                )
                for result in group
            ],
        )
        for topic, group in groupby(results, lambda result: result.topic)
    ]
