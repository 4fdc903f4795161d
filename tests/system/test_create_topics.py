"""CreateTopics, CreatePartitions and topics that come of themselves."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from wire_client import WireClient


@pytest.mark.usefixtures("lakelog_only")
def test_duplicate_settings_of_a_topic_are_refused(wire: WireClient, unused: str) -> None:
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
    assert "retention.ms has two values" in configs_twice.error_message
    assert replicas_twice.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_many_topics_come_of_one_question(wire: WireClient, unused: str) -> None:
    names = [f"{unused}-{number}" for number in range(20)]
    bad = "no spaces please"
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in [*names, bad]])
    wire.call(request, 12)
    found = {topic.name: topic for topic in wire.call(request, 12).topics}
    assert [len(found[name].partitions) for name in names] == [1] * 20
    assert found[bad].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
