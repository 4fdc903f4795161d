"""AlterPartition over the wire."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.brokers import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from lakelog.server.handlers import alter_partition
from memory_broker import MemoryBroker


@pytest.mark.parametrize("version", [2, 3])
def test_each_partition_has_its_result(version: int) -> None:
    with MemoryBroker() as world:
        topic_id = world.create("t", 2)
        isr = [BrokerState(broker_id=1, broker_epoch=1)]
        partitions = [
            PartitionData(
                partition_index=index,
                leader_epoch=0,
                partition_epoch=0,
                new_isr=[1],
                new_isr_with_epochs=isr,
            )
            for index in (0, 2)
        ]
        request = AlterPartitionRequest(
            broker_id=1,
            broker_epoch=1,
            topics=[TopicData(topic_id=topic_id, partitions=partitions)],
        )
        response = world.ask(alter_partition.handle, request, version, sender=1)
        first, second = response.topics[0].partitions
        assert (first.error_code, first.leader_id, first.isr) == (0, 1, [1])
        assert first.partition_epoch == 1
        assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("sender", [None, 3], ids=["a client", "another broker"])
def test_nothing_else_speaks_for_a_broker(sender: int | None) -> None:
    with MemoryBroker() as world:
        before = world.broker.image
        request = AlterPartitionRequest(broker_id=1, broker_epoch=1)
        response = world.ask(alter_partition.handle, request, 3, sender=sender)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert world.broker.image is before
