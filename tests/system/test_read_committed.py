"""What consumers of committed records see, frame by frame and through other people's libraries."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest

from broker_process import BrokerProcess
from delivered import delivered
from file_oracle import check_data_folder
from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import (
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lakelog.protocol.transactions import (
    DescribeProducersRequest,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from lakelog.records.batch import iter_batches
from waiting import eventually
from wire_client import (
    FETCH_VERSION,
    FOREVER_MS,
    RECENTLY_MS,
    WireClient,
    batch_of,
    create_topic,
    fetch,
    fetch_request,
    produce,
)
from wire_transactions import PRODUCE_VERSION, WireProducer

COMMITTED = 1


@pytest.fixture
def producer(wire: WireClient) -> WireProducer:
    return WireProducer(wire, f"txn-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def other(wire: WireClient) -> WireProducer:
    return WireProducer(wire, f"txn-{uuid.uuid4().hex[:8]}")


def committed(client: WireClient, topic: str, offset: int = 0, **options: Any) -> Any:
    return fetch(client, topic, offset, isolation_level=COMMITTED, **options)


def last_offset(answer: Any) -> int:
    return max((header.last_offset for header, _ in iter_batches(answer.records)), default=-1)


def aborted(answer: Any) -> list[tuple[int, int]]:
    return [(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions]


def stable_end(client: WireClient, topic: str, timestamp: int = -1, level: int = COMMITTED) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=level,
        topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
    )
    (found,) = client.call(request, 7).topics[0].partitions
    assert found.error_code == 0
    offset: int = found.offset
    return offset


def write_marker(
    client: WireClient, producer: WireProducer, topic: str, epoch: int, coordinator_epoch: int = 0
) -> int:
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
    )
    (result,) = client.call(WriteTxnMarkersRequest(markers=[marker]), 1).markers
    code: int = result.topics[0].partitions[0].error_code
    return code


def producers_of(client: WireClient, topic: str) -> dict[int, Any]:
    wanted = TopicRequest(name=topic, partition_indexes=[0])
    (answer,) = client.call(DescribeProducersRequest(topics=[wanted]), 0).topics
    (partition,) = answer.partitions
    assert partition.error_code == 0
    return {state.producer_id: state for state in partition.active_producers}


def test_records_end_before_the_first_transaction_under_way(
    wire: WireClient, topic: str, producer: WireProducer, other: WireProducer
) -> None:
    produce(wire, topic, batch_of(b"plain"))
    assert producer.begin(topic, b"a", b"b") == 1
    assert other.begin(topic, b"c") == 3
    produce(wire, topic, batch_of(b"plain"))
    other.end(commit=False)
    eventually(lambda: fetch(wire, topic, 0).high_watermark == 6, what="the marker")
    answer = committed(wire, topic)
    assert (answer.high_watermark, answer.last_stable_offset) == (6, 1)
    assert last_offset(answer) == 0
    assert last_offset(fetch(wire, topic, 0)) == 5
    assert fetch(wire, topic, 0).aborted_transactions is None
    producer.end(commit=True)
    eventually(lambda: committed(wire, topic).last_stable_offset == 7, what="the marker")
    answer = committed(wire, topic)
    assert (last_offset(answer), aborted(answer)) == (6, [(other.producer_id, 3)])
    assert aborted(committed(wire, topic, 6)) == []


def test_a_waiting_fetch_is_answered_when_the_transaction_ends(
    bootstrap: str, topic: str, producer: WireProducer
) -> None:
    with WireClient(bootstrap) as consumer:
        producer.add(topic)
        request = fetch_request(topic, 0, max_wait_ms=FOREVER_MS, isolation_level=COMMITTED)
        sent = consumer.send(request, FETCH_VERSION)
        assert producer.send(topic, b"value").error_code == 0
        assert consumer.is_silent(0.2)
        producer.end(commit=True)
        answered, response = consumer.receive(api_for(FetchRequest), FETCH_VERSION)
        assert (answered, last_offset(response.responses[0].partitions[0])) == (sent, 1)


def test_list_offsets_ends_at_the_last_stable_offset(
    wire: WireClient, topic: str, producer: WireProducer
) -> None:
    produce(wire, topic, batch_of(b"plain", first_ms=RECENTLY_MS - 1000))
    producer.begin(topic, b"a", b"b")
    assert stable_end(wire, topic) == 1
    assert stable_end(wire, topic, level=0) == 3
    assert stable_end(wire, topic, RECENTLY_MS) == -1
    assert stable_end(wire, topic, RECENTLY_MS, level=0) == 1
    assert stable_end(wire, topic, RECENTLY_MS - 1000) == 0
    assert stable_end(wire, topic, -3) == -1
    producer.end(commit=True)
    eventually(lambda: stable_end(wire, topic) == 4, what="the marker")
    assert stable_end(wire, topic, RECENTLY_MS) == 1


def test_a_hanging_transaction_is_found_and_aborted(
    wire: WireClient, topic: str, producer: WireProducer
) -> None:
    """KIP-664: an administrator writes the marker, with the id and the epoch described here."""
    producer = WireProducer(wire, producer.transactional_id)
    assert producer.epoch == 1
    producer.begin(topic, b"a")
    state = producers_of(wire, topic)[producer.producer_id]
    assert (state.producer_epoch, state.current_txn_start_offset) == (producer.epoch, 0)
    assert state.coordinator_epoch == -1
    late = write_marker(wire, producer, topic, producer.epoch - 1)
    assert late == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(wire, topic).last_stable_offset == 0
    assert write_marker(wire, producer, topic, state.producer_epoch) == 0
    answer = committed(wire, topic)
    assert (answer.last_stable_offset, aborted(answer)) == (2, [(producer.producer_id, 0)])
    state = producers_of(wire, topic)[producer.producer_id]
    assert (state.current_txn_start_offset, state.coordinator_epoch) == (-1, 0)


def test_a_partition_never_added_takes_no_transactional_batch(
    wire: WireClient, unused: str, producer: WireProducer
) -> None:
    """KIP-890 part 1: it would hang for ever."""
    create_topic(wire, unused, 2)
    producer.begin(unused, b"a", partition=0)
    answer = producer.send(unused, b"b", partition=1)
    assert answer.error_code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    answer = committed(wire, unused, partition=1)
    assert (answer.last_stable_offset, answer.high_watermark) == (0, 0)
    producer.end(commit=False)


def test_a_transactional_batch_needs_its_transactional_id(
    wire: WireClient, topic: str, producer: WireProducer
) -> None:
    """CVE-2018-1288: a transactional batch without its transactional id, within its transaction."""
    producer.begin(topic, b"a")
    forged = producer.request(topic, b"b")
    forged.transactional_id = None
    response = wire.call(forged, PRODUCE_VERSION)
    code = response.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert fetch(wire, topic, 0).high_watermark == 1
    producer.end(commit=False)


def test_a_producer_may_not_write_outside_of_its_transaction(
    wire: WireClient, topic: str, producer: WireProducer
) -> None:
    producer.begin(topic, b"a")
    identity = (producer.producer_id, producer.epoch, 1)
    plain = produce(wire, topic, batch_of(b"b", producer=identity))
    assert plain.error_code == ErrorCode.INVALID_TXN_STATE
    producer.end(commit=False)


def test_markers_are_answered_one_by_one(
    wire: WireClient, topic: str, producer: WireProducer
) -> None:
    """The second of an older coordinator, the third for a partition that is not there."""
    producer.begin(topic, b"a")
    producer.end(commit=True)
    eventually(lambda: committed(wire, topic).last_stable_offset == 2, what="the marker")
    assert write_marker(wire, producer, topic, producer.epoch, coordinator_epoch=7) == 0
    older = write_marker(wire, producer, topic, producer.epoch, coordinator_epoch=6)
    assert older == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    missing = write_marker(wire, producer, f"{topic}-none", producer.epoch)
    assert missing == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_late_batch_begins_no_transaction(
    wire: WireClient, topic: str, producer: WireProducer
) -> None:
    """KAFKA-14402: what arrives after the marker is of no transaction."""
    producer.begin(topic, b"a")
    late = producer.request(topic, b"b")
    producer.end(commit=False)
    eventually(lambda: committed(wire, topic).last_stable_offset == 2, what="the marker")
    response = wire.call(late, PRODUCE_VERSION)
    code = response.responses[0].partition_responses[0].error_code
    assert code in (
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
    assert committed(wire, topic).last_stable_offset == 2


def test_frames_of_one_transaction_do_nothing_to_the_next(
    wire: WireClient, topic: str, unused: str
) -> None:
    """KIP-890 part 2, KAFKA-17754: each transaction has its own epoch."""
    producer = WireProducer(wire, unused, version=2)
    producer.begin(topic, b"first")
    late = producer.request(topic, b"late")
    late_end = producer.end_request(commit=True)
    producer.end(commit=False)
    assert producer.begin(topic, b"second") == 2
    code = wire.call(late, 12).responses[0].partition_responses[0].error_code
    assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert wire.call(late_end, 5).error_code in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
    )
    answer = committed(wire, topic)
    assert (answer.last_stable_offset, answer.high_watermark) == (2, 3)
    producer.end(commit=True)
    eventually(lambda: committed(wire, topic).last_stable_offset == 4, what="the marker")
    assert [first for _, first in aborted(committed(wire, topic))] == [0]


def test_batches_sent_at_once_stay_in_order(
    wire: WireClient, topic: str, producer: WireProducer
) -> None:
    """The second waits with the first for the coordinator's word."""
    producer.add(topic)
    requests = [producer.request(topic, b"%d" % number) for number in range(5)]
    sent = [wire.send(request, PRODUCE_VERSION) for request in requests]
    for number, correlation_id in enumerate(sent):
        answered, response = wire.receive(api_for(type(requests[0])), PRODUCE_VERSION)
        result = response.responses[0].partition_responses[0]
        assert (answered, result.error_code) == (correlation_id, 0)
        assert result.base_offset == number
    producer.end(commit=True)


def _confluent(bootstrap: str, topic: str) -> list[bytes]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": uuid.uuid4().hex,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "fetch.max.bytes": 1000,
        "message.max.bytes": 1000,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return values
            values.append(delivered(message).value)
    finally:
        consumer.close()


def _kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None
    )
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    end = consumer.end_offsets([partition])[partition]
    values: list[bytes] = []
    try:
        while consumer.position(partition) < end:
            for records in consumer.poll(500).values():
                values += [record.value for record in records]
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize("read", [_confluent, _kafka_python])
def test_other_clients_drop_aborted_records(
    read: Callable[[str, str], list[bytes]],
    bootstrap: str,
    wire: WireClient,
    unused: str,
) -> None:
    """Five producers' transactions overlap, and end in any order; one stays under way."""
    create_topic(wire, unused, config={"segment.bytes": "1048576", "index.interval.bytes": "100"})
    producers = [WireProducer(wire, f"{unused}-{number}") for number in range(5)]
    expected: list[tuple[int, bytes]] = []
    ends = 0
    for round_number in range(6):
        offsets: dict[int, list[tuple[int, bytes]]] = {}
        for number, each in enumerate(producers):
            values = [b"%d %d %d" % (round_number, number, index) for index in range(3)]
            first = each.begin(unused, *values)
            offsets[number] = [(first + index, value) for index, value in enumerate(values)]
        order = [(round_number + number * 2) % 5 for number in range(5)]
        for number in order:
            ends += 1
            commit = ends % 3 == 0
            producers[number].end(commit=commit)
            if commit:
                expected += offsets[number]
    last = wire_end(wire, unused)
    eventually(lambda: committed(wire, unused, last).last_stable_offset >= last, what="the end")
    producers[0].begin(unused, b"not decided")
    assert read(bootstrap, unused) == [value for _, value in sorted(expected)]
    producers[0].end(commit=False)


def wire_end(client: WireClient, topic: str) -> int:
    return stable_end(client, topic, level=0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as running:
        yield running


@pytest.mark.parametrize("clean", [False, True])
def test_transactions_outlive_the_process(broker: BrokerProcess, clean: bool) -> None:
    with WireClient(broker.bootstrap) as client:
        create_topic(client, "t")
        first, second = WireProducer(client, "first"), WireProducer(client, "second")
        first.begin("t", b"a")
        first.end(commit=False)
        eventually(lambda: committed(client, "t").last_stable_offset == 2, what="the marker")
        second.begin("t", b"b")
        before = producers_of(client, "t")
    if clean:
        broker.stop()
    else:
        broker.kill()
    broker.restart()
    with WireClient(broker.bootstrap) as client:
        eventually(lambda: fetch(client, "t", 0).error_code == 0, what="the leader")
        answer = committed(client, "t")
        assert (answer.last_stable_offset, answer.high_watermark) == (2, 3)
        assert aborted(answer) == [(first.producer_id, 0)]
        assert producers_of(client, "t") == before
        assert write_marker(client, second, "t", second.epoch) == 0
        answer = committed(client, "t")
        assert (answer.last_stable_offset, len(aborted(answer))) == (4, 2)
    broker.stop()
    if not clean:
        check_data_folder(broker.data)
