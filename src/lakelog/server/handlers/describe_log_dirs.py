"""DescribeLogDirs (35): returns the data folder, its space, and the size of each partition."""

from __future__ import annotations

from lakelog.protocol.replicas import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from lakelog.replica.partition import Partition
from lakelog.server.broker import Broker
from lakelog.server.monitoring.readiness import offline_reason
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Return the one data folder, with its partitions; all sizes are in bytes (KIP-827)."""
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in _partitions(broker, request):
        topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=partition.index, partition_size=partition.log.size
            )
        )
    total, usable = broker.disk_space()
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(broker.data_path),
                topics=list(topics.values()),
                total_bytes=total,
                usable_bytes=usable,
                problem=_problem(broker),
            )
        ]
    )


API = ServedApi(
    DescribeLogDirsRequest,
    handle,
    done="Sizes of partitions; space and problems of the data folder.",
)


def _problem(broker: Broker) -> str:
    """Return why the broker cannot write to its data folder, or to the logs of some partitions."""
    reasons = (offline_reason(broker.partitions.offline()), *broker.shortages.reasons.values())
    return "; ".join(filter(None, reasons))


def _partitions(broker: Broker, request: DescribeLogDirsRequest) -> list[Partition]:
    if request.topics is None:
        return list(broker.partitions)
    partitions = (
        broker.partitions.get(topic.topic, index)
        for topic in request.topics
        for index in topic.partitions
    )
    return [partition for partition in partitions if partition is not None]
