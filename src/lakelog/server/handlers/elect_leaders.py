"""ElectLeaders (43): moves leaders to the preferred replica, or to a replica out of sync.

Version 0 has no election type and no error of the whole request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.metadata.controller.brokers import plan_forget_epochs
from lakelog.metadata.controller.leadership import ElectionResult, ElectionType, plan_elect_leaders
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.protocol.replicas import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Elect leaders of the named partitions, of all without names.

    A `KafkaError` of the whole change is the error of the response and of each partition, for
    example INVALID_REQUEST for an unknown election type.
    """
    asked = request.topic_partitions
    topics = None if asked is None else [(entry.topic, entry.partitions) for entry in asked]
    try:
        election_type = _election_type(request.election_type)
        leaders = _wanted_leaders(request)
        results = await broker.metadata.submit(
            lambda image: _elected(image, election_type, topics, leaders)
        )
    except KafkaError as error:
        return _refused(context, request, error)
    return ElectLeadersResponse(replica_election_results=_by_topic(results))


def _refused(
    context: Context, request: ElectLeadersRequest, error: KafkaError
) -> ElectLeadersResponse:
    """Set the error of the request in each partition too: version 0 has no other place."""
    results = [
        ElectionResult(entry.topic, partition, error.code, error.message)
        for entry in request.topic_partitions or ()
        for partition in entry.partitions
    ]
    return ElectLeadersResponse(error_code=error.code, replica_election_results=_by_topic(results))


API = ServedApi(
    ElectLeadersRequest,
    handle,
    done="Preferred and unclean, also of a named replica (a tagged field of our own).",
    by_controller=_refused,
)


def _elected(
    image: MetadataImage,
    election_type: ElectionType,
    topics: Sequence[tuple[str, Sequence[int]]] | None,
    leaders: Mapping[tuple[str, int], int],
) -> Plan[list[ElectionResult]]:
    """Plan the elections. An unclean one may lose the state of transactions, and their epochs."""
    plan = plan_elect_leaders(image, election_type, topics, leaders)
    loses_epochs = election_type is ElectionType.UNCLEAN and any(
        result.topic == TRANSACTION_TOPIC and not result.error for result in plan.result
    )
    if not loses_epochs:
        return plan
    return plan._replace(records=(*plan.records, *plan_forget_epochs(image).records))


def _wanted_leaders(request: ElectLeadersRequest) -> dict[tuple[str, int], int]:
    named = [entry for entry in request.topic_partitions or () if entry.leaders]
    if any(len(entry.leaders) != len(entry.partitions) for entry in named):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "each partition needs one wanted leader")
    return {
        (entry.topic, partition): leader
        for entry in named
        for partition, leader in zip(entry.partitions, entry.leaders, strict=True)
    }


def _election_type(number: int) -> ElectionType:
    try:
        return ElectionType(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown election type {number}") from None


def _by_topic(results: list[ElectionResult]) -> list[ReplicaElectionResult]:
    return [
        ReplicaElectionResult(
            topic=topic,
            partition_result=[
                PartitionResult(
                    partition_id=result.partition,
                    error_code=result.error,
                    error_message=result.message,
                )
                for result in group
            ],
        )
        for topic, group in groupby(results, lambda result: result.topic)
    ]
