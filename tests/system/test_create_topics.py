"""CreateTopics, CreatePartitions and topics that come of themselves."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from wire_client import WireClient


@pytest.mark.usefixtures("lakelog_only")
def test_what_is_said_twice_of_a_topic_must_agree(wire: WireClient, unused: str) -> None:
    """Apache Kafka takes the last of two values, and refuses two assignments of a partition."""
    configs = [CreatableTopicConfig(name="retention.ms", value=value) for value in ("5", "6")]
    replicas = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1]) for _ in range(2)]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=f"{unused}-a", num_partitions=1, replication_factor=1, configs=configs
            ),
            CreatableTopic(
                name=f"{unused}-b", num_partitions=-1, replication_factor=-1, assignments=replicas
            ),
        ],
        timeout_ms=10_000,
    )
    configs_twice, replicas_twice = wire.call(request, 7).topics
    assert configs_twice.error_code == ErrorCode.INVALID_CONFIG
    assert "retention.ms is given twice" in configs_twice.error_message
    assert replicas_twice.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
