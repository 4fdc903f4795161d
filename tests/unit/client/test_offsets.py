from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client import offsets
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError
from lakelog.client.offsets import EARLIEST, LATEST, OffsetAt, known_offsets, list_offsets
from lakelog.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from scripted_broker import ScriptedBroker

BOTH = {("orders", 0): EARLIEST, ("orders", 1): LATEST}


def response(*rows: tuple[int, int, int]) -> ListOffsetsResponse:
    """Rows are index, error and offset."""
    partitions = [
        ListOffsetsPartitionResponse(
            partition_index=index, error_code=error, offset=offset, timestamp=-1, leader_epoch=4
        )
        for index, error, offset in rows
    ]
    topic = ListOffsetsTopicResponse(name="orders", partitions=partitions)
    return ListOffsetsResponse(topics=[topic])


@pytest.mark.parametrize(("read_committed", "level"), [(False, 0), (True, 1)])
def test_offsets_depend_on_the_isolation_level(
    broker: ScriptedBroker, cluster: Cluster, read_committed: bool, level: int
) -> None:
    broker.on(ListOffsetsRequest, response((0, 0, 3), (1, 0, 9)))
    found = list_offsets(cluster, BOTH, read_committed=read_committed)
    assert found == {("orders", 0): OffsetAt(3, -1, 4), ("orders", 1): OffsetAt(9, -1, 4)}
    (request,) = broker.asked(ListOffsetsRequest)
    assert request.isolation_level == level
    times = [row.timestamp for row in request.topics[0].partitions]
    assert times == [EARLIEST, LATEST]


def test_a_partition_that_has_moved_is_asked_for_again(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(ListOffsetsRequest, response((0, 0, 3), (1, 6, -1)), response((1, 0, 9)))
    assert list_offsets(cluster, BOTH)["orders", 1].offset == 9
    second = broker.asked(ListOffsetsRequest)[1]
    assert [row.partition_index for row in second.topics[0].partitions] == [1]


def test_an_error_names_the_partition(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.on(ListOffsetsRequest, response((0, 0, 3), (1, 29, -1)))
    with pytest.raises(ClientError, match="orders-1: not allowed by the broker"):
        list_offsets(cluster, BOTH)


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_known_offsets_are_returned_without_the_unknown_ones(
    broker: ScriptedBroker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    monkeypatch.setattr(offsets, "_KNOWN_WITHIN_S", 0.01)
    broker.on(ListOffsetsRequest, response((0, 0, 3), (1, code, -1)), response((1, code, -1)))
    assert known_offsets(cluster, BOTH) == {("orders", 0): OffsetAt(3, -1, 4)}
    assert cluster.timeout_s == 10.0


def test_offsets_are_waited_for_before_they_count_as_unknown(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    unknown = ErrorCode.OFFSET_NOT_AVAILABLE
    broker.on(ListOffsetsRequest, response((0, 0, 3), (1, unknown, -1)), response((1, 0, 9)))
    assert known_offsets(cluster, BOTH)["orders", 1].offset == 9


def test_a_refusal_is_not_an_unknown_offset(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.on(ListOffsetsRequest, response((0, 0, 3), (1, 29, -1)))
    with pytest.raises(ClientError, match="orders-1: not allowed by the broker"):
        known_offsets(cluster, BOTH)
