"""Reports of replicas whose logs are damaged or have failed."""

from __future__ import annotations

import pytest

from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.failed_replicas import plan_failed_replicas
from lakelog.metadata.failover import NO_LEADER, Failure
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerReadOnly, BrokerRecord, PartitionRecord, TopicRecord

TOPIC, GONE = b"t" * 16, b"g" * 16


@pytest.fixture
def image() -> MetadataImage:
    """Two partitions that broker 1 leads, the second one alone."""
    brokers = [BrokerRecord(each, bytes([each]) * 16, 1, (), None) for each in (1, 2)]
    states = [
        PartitionRecord(TOPIC, 0, (1, 2), (1, 2), 1, 5, 8),
        PartitionRecord(TOPIC, 1, (1,), (1,), 1, 5, 8),
    ]
    return MetadataImage().apply_all([*brokers, TopicRecord("t", TOPIC), *states], 1)


def test_only_a_failed_replica_with_a_successor_hands_over(image: MetadataImage) -> None:
    failed = dict.fromkeys([(TOPIC, 0), (TOPIC, 1), (GONE, 0), (TOPIC, 7)], Failure(5))
    (record,) = plan_failed_replicas(image, 1, 1, failed).records
    assert record == PartitionRecord(TOPIC, 0, (1, 2), (2,), 2, 6, 9)
    assert plan_failed_replicas(image.apply(record), 1, 1, failed).records == ()


def test_a_broker_that_cannot_write_is_no_successor(image: MetadataImage) -> None:
    stuck = image.apply(PartitionRecord(TOPIC, 0, (1, 2), (1,), 1, 5, 9, (2,)))
    stuck = stuck.apply(BrokerReadOnly(2, 1))
    assert plan_failed_replicas(stuck, 1, 1, {(TOPIC, 0): Failure(5)}).records == ()


def test_a_partition_has_no_leader_while_its_only_log_is_offline(image: MetadataImage) -> None:
    failed = {(TOPIC, 1): Failure(5, is_offline=True)}
    (record,) = plan_failed_replicas(image, 1, 1, failed).records
    assert record == PartitionRecord(TOPIC, 1, (1,), (), NO_LEADER, 6, 9, (1,))
    assert plan_failed_replicas(image.apply(record), 1, 1, failed).records == ()


def test_another_process_reports_nothing(image: MetadataImage) -> None:
    with pytest.raises(KafkaError, match="not registered in epoch 2"):
        plan_failed_replicas(image, 1, 2, {(TOPIC, 0): Failure(5)})
