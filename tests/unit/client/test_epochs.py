"""Ends of leader epochs (KIP-320)."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.epochs import EpochEnd, epoch_ends, epoch_ends_at_once
from lakelog.protocol.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from scripted_broker import LEADER_EPOCH, ScriptedBroker

BOTH = {("orders", 0): 3, ("orders", 1): 4}


def response(*rows: tuple[int, int, int, int]) -> OffsetForLeaderEpochResponse:
    """Rows are index, error, epoch and end."""
    partitions = [
        EpochEndOffset(partition=index, error_code=error, leader_epoch=epoch, end_offset=end)
        for index, error, epoch, end in rows
    ]
    topic = OffsetForLeaderTopicResult(topic="orders", partitions=partitions)
    return OffsetForLeaderEpochResponse(topics=[topic])


def test_a_former_leader_can_detect_that_it_is_asked_by_mistake(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(OffsetForLeaderEpochRequest, response((0, 0, 3, 70), (1, 0, -1, -1)))
    assert epoch_ends(cluster, BOTH) == {
        ("orders", 0): EpochEnd(3, 70),
        ("orders", 1): EpochEnd(-1, -1),
    }
    (request,) = broker.asked(OffsetForLeaderEpochRequest)
    rows = [(row.current_leader_epoch, row.leader_epoch) for row in request.topics[0].partitions]
    assert rows == [(LEADER_EPOCH, 3), (LEADER_EPOCH, 4)]
    assert request.replica_id == -1, "a consumer"


def test_an_offline_partition_does_not_delay_the_others(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(OffsetForLeaderEpochRequest, response((0, 56, -1, -1), (1, 0, 4, 9)))
    found, error = epoch_ends_at_once(cluster, BOTH)
    assert found == {("orders", 1): EpochEnd(4, 9)}
    assert error is not None
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(broker.asked(OffsetForLeaderEpochRequest)) == 1


def test_a_fenced_request_is_repeated(broker: ScriptedBroker, cluster: Cluster) -> None:
    fenced = response((0, 74, -1, -1), (1, 0, 4, 9))
    broker.on(OffsetForLeaderEpochRequest, fenced, response((0, 0, 3, 7)))
    assert epoch_ends(cluster, BOTH)["orders", 0] == EpochEnd(3, 7)
