"""WriteTxnMarkers and DescribeProducers: a hanging transaction is found and ended (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.transactions import (
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from lakelog.server.handlers.transactions import describe_producers, write_txn_markers
from memory_broker import MemoryBroker
from storage_kit import NOW, append, append_in_transaction, make_batch

E = ErrorCode


class TransactionAdmin:
    """The topic `t` of a broker in memory, and the requests of an administrator."""

    def __init__(self, memory: MemoryBroker) -> None:
        self.memory = memory
        self.topic_id = memory.create("t", 2)
        self.partitions = memory.broker.partitions
        self.log = memory.partition("t").log

    def write(self, *markers: WritableTxnMarker) -> list[tuple[int, dict[str, dict[int, int]]]]:
        """Per producer the error codes by topic and partition."""
        request = WriteTxnMarkersRequest(markers=list(markers))
        response = self.memory.ask(write_txn_markers, request, 2)
        return [
            (
                result.producer_id,
                {
                    topic.name: {p.partition_index: p.error_code for p in topic.partitions}
                    for topic in result.topics
                },
            )
            for result in response.markers
        ]

    def describe(self, topic: str, *indexes: int) -> list[PartitionResponse]:
        topics = [TopicRequest(name=topic, partition_indexes=list(indexes))]
        request = DescribeProducersRequest(topics=topics)
        response = self.memory.ask(describe_producers, request, 0)
        return response.topics[0].partitions


@pytest.fixture
def admin() -> Iterator[TransactionAdmin]:
    with MemoryBroker() as memory:
        yield TransactionAdmin(memory)


def marker(
    producer_id: int, *indexes: int, epoch: int = 0, commit: bool = False, topic: str = "t"
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
        coordinator_epoch=3,
    )


def test_a_hanging_transaction_is_described_and_aborted(admin: TransactionAdmin) -> None:
    append(admin.log, make_batch(2, producer=(8, 1, 5)))
    append_in_transaction(admin.log, (9, 0, 0), 2)
    (described,) = admin.describe("t", 0)
    assert (described.partition_index, described.error_code) == (0, 0)
    first, hanging = described.active_producers
    assert (first.producer_id, first.producer_epoch, first.last_sequence) == (8, 1, 6)
    assert (first.current_txn_start_offset, first.coordinator_epoch) == (-1, -1)
    assert first.last_timestamp == NOW + 1
    assert (hanging.producer_id, hanging.current_txn_start_offset) == (9, 2)
    assert admin.write(marker(9, 0)) == [(9, {"t": {0: 0}})]
    assert admin.log.last_stable_offset == admin.log.log_end_offset == 5
    (described,) = admin.describe("t", 0)
    ended = described.active_producers[1]
    assert (ended.current_txn_start_offset, ended.coordinator_epoch) == (-1, 3)
    assert (ended.last_sequence, ended.last_timestamp) == (1, admin.memory.clock.wall_ms())


def test_each_partition_of_each_marker_has_its_code(admin: TransactionAdmin) -> None:
    append_in_transaction(admin.log, (9, 5, 0))
    results = admin.write(
        marker(9, 0, 1, 2, epoch=4), marker(8, 0), marker(8, 0, topic="none"), marker(-1, 0)
    )
    assert results == [
        (9, {"t": {0: E.INVALID_PRODUCER_EPOCH, 1: 0, 2: E.UNKNOWN_TOPIC_OR_PARTITION}}),
        (8, {"t": {0: 0}, "none": {0: E.UNKNOWN_TOPIC_OR_PARTITION}}),
        (-1, {"t": {0: E.UNKNOWN_SERVER_ERROR}}),
    ]
    assert admin.log.last_stable_offset == 0


@pytest.mark.parametrize(
    ("producer", "epoch", "code"),
    [
        (9, -1, E.UNKNOWN_SERVER_ERROR),
        (9, -2, E.INVALID_PRODUCER_EPOCH),
        (-1, 0, E.UNKNOWN_SERVER_ERROR),
        (-2, 0, E.INVALID_REQUEST),
    ],
)
def test_a_producer_that_cannot_be_writes_nothing(
    admin: TransactionAdmin, producer: int, epoch: int, code: E
) -> None:
    (result,) = admin.write(marker(producer, 0, 2, epoch=epoch))
    assert result == (producer, {"t": {0: code, 2: E.UNKNOWN_TOPIC_OR_PARTITION}})
    assert admin.log.log_end_offset == 0


def test_an_older_coordinator_is_fenced(admin: TransactionAdmin) -> None:
    admin.partitions.leader("t", 0).append_marker(9, 0, True, 4, NOW, transaction_version=0)
    assert admin.write(marker(9, 0)) == [(9, {"t": {0: E.TRANSACTION_COORDINATOR_FENCED}})]


def test_producers_of_a_partition_that_is_not_there(admin: TransactionAdmin) -> None:
    admin.partitions.add_offline("t", admin.topic_id, 7, "damaged")
    missing, offline, empty = admin.describe("t", 5, 7, 1)
    assert missing.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (offline.error_code, offline.error_message) == (E.KAFKA_STORAGE_ERROR, "damaged")
    assert (empty.error_code, empty.active_producers) == (0, [])
    for impossible in ("", "a b", "a" * 250):
        assert admin.describe(impossible, 0)[0].error_code == E.INVALID_TOPIC_EXCEPTION
