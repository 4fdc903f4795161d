"""Requests to the leaders of many partitions.

Ends of leader epochs (KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client import offsets
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, ConnectionLostError
from lakelog.client.offsets import (
    EARLIEST,
    LATEST,
    EpochEnd,
    OffsetAt,
    TopicPartition,
    ask_leaders,
    ask_leaders_once,
    epoch_ends,
    epoch_ends_at_once,
    known_offsets,
    list_offsets,
)
from lakelog.protocol.fetch import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from scripted_broker import LEADER_EPOCH, ScriptedBroker

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


LEADERS_BOTH = [("orders", 0), ("orders", 1)]


@pytest.fixture
def two(broker: ScriptedBroker) -> Iterator[Cluster]:
    """A cluster in which node 1 leads partition 0, and node 2 partition 1."""
    with ScriptedBroker(node_id=2) as other:
        broker.peers = [other]
        other.peers = [broker]
        broker.leaders = other.leaders = {("orders", 0): 1, ("orders", 1): 2}
        with Cluster(broker.address, timeout_s=10.0) as cluster:
            yield cluster


class Asked:
    """Answers with the node; fails at `failing` nodes, once each."""

    def __init__(self, failing: dict[int, ClientError]) -> None:
        self.failing = failing
        self.calls: list[tuple[int, list[TopicPartition]]] = []

    def __call__(
        self, node: int, keys: Sequence[TopicPartition], found: dict[TopicPartition, int]
    ) -> None:
        self.calls.append((node, list(keys)))
        if node in self.failing:
            raise self.failing.pop(node)
        found.update(dict.fromkeys(keys, node))


def test_each_leader_is_asked_about_its_own_partitions(two: Cluster) -> None:
    asked = Asked({})
    assert ask_leaders(two, LEADERS_BOTH, asked) == {("orders", 0): 1, ("orders", 1): 2}
    assert asked.calls == [(1, LEADERS_BOTH[:1]), (2, LEADERS_BOTH[1:])]


@pytest.mark.parametrize(
    "error",
    [ClientError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ConnectionLostError("reset by peer")],
)
def test_only_missing_answers_are_asked_for_again(two: Cluster, error: ClientError) -> None:
    asked = Asked({1: error})
    assert ask_leaders(two, LEADERS_BOTH, asked) == {("orders", 0): 1, ("orders", 1): 2}
    assert [node for node, _ in asked.calls] == [1, 2, 1]


def test_a_final_error_is_raised_after_the_other_leaders_have_answered(two: Cluster) -> None:
    asked = Asked({1: ClientError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)})
    found: dict[TopicPartition, int] = {}
    with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
        ask_leaders_once(two, LEADERS_BOTH, asked, found)
    assert found == {("orders", 1): 2}


def test_a_partition_without_a_leader_does_not_delay_the_others(
    two: Cluster, broker: ScriptedBroker
) -> None:
    broker.leaders["orders", 0] = -1
    asked = Asked({})
    found: dict[TopicPartition, int] = {}
    with pytest.raises(ClientError, match="orders-0 has no leader"):
        ask_leaders_once(two, LEADERS_BOTH, asked, found)
    assert found == {("orders", 1): 2}


def test_answers_are_kept_when_the_call_fails(two: Cluster) -> None:
    asked = Asked({1: ClientError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)})
    found: dict[TopicPartition, int] = {}
    with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
        ask_leaders(two, LEADERS_BOTH, asked, found)
    assert found == {("orders", 1): 2}


def test_no_partition_needs_no_request(two: Cluster) -> None:
    asked = Asked({})
    assert ask_leaders(two, [], asked) == {}
    assert asked.calls == []


EPOCHS_BOTH = {("orders", 0): 3, ("orders", 1): 4}


def epochs_response(*rows: tuple[int, int, int, int]) -> OffsetForLeaderEpochResponse:
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
    broker.on(OffsetForLeaderEpochRequest, epochs_response((0, 0, 3, 70), (1, 0, -1, -1)))
    assert epoch_ends(cluster, EPOCHS_BOTH) == {
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
    broker.on(OffsetForLeaderEpochRequest, epochs_response((0, 56, -1, -1), (1, 0, 4, 9)))
    found, error = epoch_ends_at_once(cluster, EPOCHS_BOTH)
    assert found == {("orders", 1): EpochEnd(4, 9)}
    assert error is not None
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(broker.asked(OffsetForLeaderEpochRequest)) == 1


def test_a_fenced_request_is_repeated(broker: ScriptedBroker, cluster: Cluster) -> None:
    fenced = epochs_response((0, 74, -1, -1), (1, 0, 4, 9))
    broker.on(OffsetForLeaderEpochRequest, fenced, epochs_response((0, 0, 3, 7)))
    assert epoch_ends(cluster, EPOCHS_BOTH)["orders", 0] == EpochEnd(3, 7)
