"""Requests in flight at the leaders, and the failures that are retried."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.consumer.fetcher import Fetcher, FetchLimits, Misplaced
from lakelog.client.consumer.positions import Position
from lakelog.client.errors import ClientError
from lakelog.protocol.fetch import (
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from lakelog.records.builder import BatchBuilder
from scripted_broker import LEADER_EPOCH, ScriptedBroker, records_of

KEY = ("orders", 0)


def three_records(request: FetchRequest) -> FetchResponse:
    builder = BatchBuilder()
    base = request.topics[0].partitions[0].fetch_offset
    for number in range(3):
        builder.append(number, None, b"v")
    return records_of(request, bytes(builder.build(base_offset=base, leader_epoch=2)), 99)


@pytest.fixture
def fetcher(broker: ScriptedBroker, cluster: Cluster) -> Iterator[Fetcher]:
    broker.on(FetchRequest, three_records)
    cluster.refresh(["orders"])
    fetcher = Fetcher(cluster, FetchLimits(max_wait_ms=7, max_bytes=1000), read_committed=True)
    yield fetcher
    fetcher.close()


def fetch_until_records(fetcher: Fetcher, position: Position) -> None:
    for _ in range(1000):
        assert fetcher.fetch([position], 0.01) == []
        if position.has_records:
            return
    raise AssertionError("no records")


def test_records_arrive_within_the_limits_of_the_request(
    broker: ScriptedBroker, fetcher: Fetcher
) -> None:
    position = Position(KEY, 5)
    fetch_until_records(fetcher, position)
    assert [record.offset for record in position.take(10, 1 << 20)] == [5, 6, 7]
    request = broker.asked(FetchRequest)[0]
    assert (request.max_wait_ms, request.max_bytes, request.isolation_level) == (7, 1000, 1)


def test_a_lost_connection_delays_records_and_loses_none(
    broker: ScriptedBroker, fetcher: Fetcher
) -> None:
    broker.on(FetchRequest, None, three_records)
    position = Position(KEY, 5)
    while not position.has_records:
        fetcher.fetch([position], 0.01)
        if not position.has_records and fetcher.trouble is not None:
            assert fetcher.trouble.error.code is ErrorCode.NETWORK_EXCEPTION
    assert [record.offset for record in position.take(10, 1 << 20)] == [5, 6, 7]
    assert fetcher.trouble is None
    assert len(broker.asked(FetchRequest)) == 2


def test_an_offset_outside_of_the_log_is_returned(broker: ScriptedBroker, fetcher: Fetcher) -> None:
    broker.on(FetchRequest, lambda request: records_of(request, b"", 0, error=1))
    position = Position(KEY, 5)
    found: list[Misplaced] = []
    for _ in range(1000):
        found = fetcher.fetch([position], 0.01)
        if found:
            break
    assert found == [Misplaced(position, 0)]


def test_a_response_to_a_request_before_a_seek_is_dropped(fetcher: Fetcher) -> None:
    position = Position(KEY, 5)
    fetcher.ask([position])
    position.seek(50)
    fetch_until_records(fetcher, position)
    assert position.take(1, 1 << 20)[0].offset == 50


def test_an_error_that_no_retry_heals_is_raised(broker: ScriptedBroker, fetcher: Fetcher) -> None:
    broker.on(FetchRequest, lambda request: records_of(request, b"", 0, error=29))
    position = Position(KEY, 5)
    with pytest.raises(ClientError, match="orders-0 at offset 5: not allowed"):
        for _ in range(1000):
            fetcher.fetch([position], 0.01)


def test_a_new_leader_is_asked_first_whether_its_log_has_the_records(
    broker: ScriptedBroker, fetcher: Fetcher
) -> None:
    """KIP-320."""
    row = EpochEndOffset(partition=0, leader_epoch=2, end_offset=3)
    topic = OffsetForLeaderTopicResult(topic="orders", partitions=[row])
    broker.on(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse(topics=[topic]))
    position = Position(KEY)
    position.seek(5, epoch=2)
    found: list[Misplaced] = []
    for _ in range(1000):
        found = fetcher.fetch([position], 0.01)
        if found:
            break
    assert found[0].end is not None
    assert found[0].end.end_offset == 3
    (request,) = broker.asked(OffsetForLeaderEpochRequest)
    assert request.topics[0].partitions[0].current_leader_epoch == LEADER_EPOCH
    assert broker.asked(FetchRequest) == [], "nothing is read from the diverged log"


def test_a_partition_without_a_leader_does_not_delay_the_others(
    broker: ScriptedBroker, cluster: Cluster, fetcher: Fetcher
) -> None:
    broker.leaders[KEY] = -1
    cluster.refresh(["orders"])
    leaderless, other = Position(KEY, 5), Position(("orders", 1), 5)
    for _ in range(1000):
        assert fetcher.fetch([leaderless, other], 0.01) == []
        if other.has_records:
            break
    assert [record.offset for record in other.take(10, 1 << 20)] == [5, 6, 7]
    assert not leaderless.has_records
    trouble = fetcher.trouble
    assert trouble is not None and "orders-0 has no leader" in str(trouble.error)
    fetcher.ask([leaderless, Position(("orders", 1), 8)])
    assert fetcher._leaders[broker.node_id].asked, "without a pause after the response"
    broker.leaders.pop(KEY)
    fetch_until_records(fetcher, leaderless)
    assert fetcher.trouble is None
