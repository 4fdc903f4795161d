from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from lakelog.server.handlers.write_txn_markers import handle
from memory_broker import MemoryBroker
from storage_kit import append_in_transaction

E = ErrorCode


def marker(
    *indexes: int,
    producer: int = 7,
    epoch: int = 0,
    topic: str = "orders",
    coordinator: int = 0,
    decision: int = -1,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=False,
        coordinator_epoch=coordinator,
        decision=decision,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
    )


def ask(world: MemoryBroker, *markers: WritableTxnMarker) -> WriteTxnMarkersResponse:
    return world.ask(handle, WriteTxnMarkersRequest(markers=list(markers)), 1)


def codes(response: WriteTxnMarkersResponse) -> list[int]:
    return [
        each.error_code
        for result in response.markers
        for topic in result.topics
        for each in topic.partitions
    ]


def test_a_hanging_transaction_is_aborted(world: MemoryBroker) -> None:
    world.create("orders")
    log = world.partition("orders").log
    append_in_transaction(log, (7, 0, 0), now_ms=world.clock.wall_ms())
    assert log.last_stable_offset == 0
    assert codes(ask(world, marker(0))) == [E.NONE]
    assert log.last_stable_offset == log.log_end_offset == 2


@pytest.mark.parametrize("topic", ["orders", "__consumer_offsets"])
def test_a_late_marker_of_another_broker_leaves_the_next_transaction(
    coordinators: MemoryBroker, topic: str
) -> None:
    log = coordinators.partition(topic).log
    now_ms = coordinators.clock.wall_ms()
    append_in_transaction(log, (7, 0, 0), now_ms=now_ms)
    sent = marker(0, topic=topic, decision=3)
    assert codes(ask(coordinators, sent)) == [E.NONE]
    append_in_transaction(log, (7, 0, 1), now_ms=now_ms)
    assert codes(ask(coordinators, sent)) == [E.INVALID_PRODUCER_EPOCH]
    assert log.last_stable_offset == 2
    assert codes(ask(coordinators, marker(0, topic=topic, decision=4))) == [E.NONE]
    assert log.last_stable_offset == 4


def test_each_partition_has_its_result(world: MemoryBroker) -> None:
    world.create("orders")
    assert codes(ask(world, marker(0, 9), marker(0, topic="gone", producer=8))) == [
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_producer_that_is_named_twice_has_one_result(world: MemoryBroker) -> None:
    world.create("orders")
    (result,) = ask(world, marker(0), marker(0)).markers
    assert (result.producer_id, len(result.topics)) == (7, 2)


@pytest.mark.parametrize(
    ("producer", "epoch", "code"),
    [
        (-1, 0, E.UNKNOWN_SERVER_ERROR),
        (7, -1, E.UNKNOWN_SERVER_ERROR),
        (-2, 0, E.INVALID_REQUEST),
        (7, -2, E.INVALID_PRODUCER_EPOCH),
    ],
)
def test_an_impossible_producer_has_no_marker(
    world: MemoryBroker, producer: int, epoch: int, code: ErrorCode
) -> None:
    world.create("orders")
    response = ask(world, marker(0, 9, producer=producer, epoch=epoch))
    assert codes(response) == [code, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.partition("orders").log.log_end_offset == 0


def test_an_older_producer_or_coordinator_is_fenced(world: MemoryBroker) -> None:
    world.create("orders")
    assert codes(ask(world, marker(0, epoch=5, coordinator=5))) == [E.NONE]
    assert codes(ask(world, marker(0, epoch=4, coordinator=5))) == [E.INVALID_PRODUCER_EPOCH]
    assert codes(ask(world, marker(0, epoch=5, coordinator=4))) == [
        E.TRANSACTION_COORDINATOR_FENCED
    ]


def test_the_group_coordinator_writes_markers_of_its_partitions(
    coordinators: MemoryBroker,
) -> None:
    assert codes(ask(coordinators, marker(0, topic="__consumer_offsets"))) == [E.NONE]
