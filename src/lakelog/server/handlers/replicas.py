"""The replicas of partitions: elections of leaders, moves, and sizes on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.metadata.controller.assignment import (
    Reassignment,
    ReassignmentResult,
    plan_reassignments,
)
from lakelog.metadata.controller.brokers import plan_forget_epochs
from lakelog.metadata.controller.leadership import ElectionResult, ElectionType, plan_elect_leaders
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.protocol import replicas as messages
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.server.monitoring.readiness import offline_reason
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def elect_leaders(
    broker: Broker, context: Context, request: messages.ElectLeadersRequest
) -> messages.ElectLeadersResponse:
    """ElectLeaders (43): moves leaders to the preferred replica, or to a replica out of sync.

    Version 0 has no election type and no error of the whole request.

    Without names, all partitions elect leaders. A `KafkaError` of the whole change is the error of
    the response and of each partition, for example INVALID_REQUEST for an unknown election type.
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
        return _elections_failed(context, request, error)
    return messages.ElectLeadersResponse(replica_election_results=_elections_by_topic(results))


def _elections_failed(
    context: Context, request: messages.ElectLeadersRequest, error: KafkaError
) -> messages.ElectLeadersResponse:
    """Set the error of the request in each partition too: version 0 has no other place."""
    results = [
        ElectionResult(entry.topic, partition, error.code, error.message)
        for entry in request.topic_partitions or ()
        for partition in entry.partitions
    ]
    return messages.ElectLeadersResponse(
        error_code=error.code, replica_election_results=_elections_by_topic(results)
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


def _wanted_leaders(request: messages.ElectLeadersRequest) -> dict[tuple[str, int], int]:
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


def _elections_by_topic(results: list[ElectionResult]) -> list[messages.ReplicaElectionResult]:
    return [
        messages.ReplicaElectionResult(
            topic=topic,
            partition_result=[
                messages.PartitionResult(
                    partition_id=result.partition,
                    error_code=result.error,
                    error_message=result.message,
                )
                for result in group
            ],
        )
        for topic, group in groupby(results, lambda result: result.topic)
    ]


async def alter_partition_reassignments(
    broker: Broker, context: Context, request: messages.AlterPartitionReassignmentsRequest
) -> messages.AlterPartitionReassignmentsResponse:
    """AlterPartitionReassignments (45): moves partitions to other brokers (KIP-455).

    A move to brokers that hold the partition already is done at once; other moves are rejected
    (`metadata/controller/assignment.py`).

    A `KafkaError` of the whole change is the error of the response.
    """
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
        return _moves_failed(context, request, error)
    return messages.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed, responses=_moves_by_topic(results)
    )


def _moves_failed(
    context: Context, request: messages.AlterPartitionReassignmentsRequest, error: KafkaError
) -> messages.AlterPartitionReassignmentsResponse:
    return messages.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error.code,
        error_message=error.message,
    )


def _moves_by_topic(results: list[ReassignmentResult]) -> list[messages.ReassignableTopicResponse]:
    return [
        messages.ReassignableTopicResponse(
            name=topic,
            partitions=[
                messages.ReassignablePartitionResponse(
                    partition_index=result.partition,
                    error_code=result.error,
                    error_message=result.message,
                )
                for result in group
            ],
        )
        for topic, group in groupby(results, lambda result: result.topic)
    ]


def list_partition_reassignments(
    broker: Broker, context: Context, request: messages.ListPartitionReassignmentsRequest
) -> messages.ListPartitionReassignmentsResponse:
    """ListPartitionReassignments (46): always empty, because no move takes time."""
    return messages.ListPartitionReassignmentsResponse(error_message=None)


def describe_log_dirs(
    broker: Broker, context: Context, request: messages.DescribeLogDirsRequest
) -> messages.DescribeLogDirsResponse:
    """DescribeLogDirs (35): returns the data folder, its space, and the size of each partition.

    All sizes are in bytes (KIP-827).
    """
    topics: dict[str, messages.DescribeLogDirsTopic] = {}
    for partition in _sized(broker, request):
        topic = topics.setdefault(
            partition.topic, messages.DescribeLogDirsTopic(name=partition.topic)
        )
        topic.partitions.append(
            messages.DescribeLogDirsPartition(
                partition_index=partition.index, partition_size=partition.log.size
            )
        )
    total, usable = broker.disk_space()
    return messages.DescribeLogDirsResponse(
        results=[
            messages.DescribeLogDirsResult(
                log_dir=str(broker.data_path),
                topics=list(topics.values()),
                total_bytes=total,
                usable_bytes=usable,
                problem=_problem(broker),
            )
        ]
    )


def _problem(broker: Broker) -> str:
    """Return why the broker cannot write to its data folder, or to the logs of some partitions."""
    reasons = (offline_reason(broker.partitions.offline()), *broker.shortages.reasons.values())
    return "; ".join(filter(None, reasons))


def _sized(broker: Broker, request: messages.DescribeLogDirsRequest) -> list[Partition]:
    if request.topics is None:
        return list(broker.partitions)
    partitions = (
        broker.partitions.get(topic.topic, index)
        for topic in request.topics
        for index in topic.partitions
    )
    return [partition for partition in partitions if partition is not None]


APIS = (
    ServedApi(
        messages.ElectLeadersRequest,
        elect_leaders,
        done="Preferred and unclean, also of a named replica (a tagged field of our own).",
        by_controller=_elections_failed,
    ),
    ServedApi(
        messages.AlterPartitionReassignmentsRequest,
        alter_partition_reassignments,
        done="Changes of the order of replicas, completed at once.",
        missing="Moves to brokers that hold no replica of the partition.",
        by_controller=_moves_failed,
    ),
    ServedApi(
        messages.ListPartitionReassignmentsRequest,
        list_partition_reassignments,
        done="Always empty, because no reassignment takes time.",
    ),
    ServedApi(
        messages.DescribeLogDirsRequest,
        describe_log_dirs,
        done="Sizes of partitions; space and problems of the data folder.",
    ),
)
