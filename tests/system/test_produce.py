"""Produce, frame by frame: acknowledgements, order, idempotence (KIP-98) and refusals."""

from __future__ import annotations

import time
import uuid

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.protocol.produce import ProduceRequest
from lakelog.protocol.transactions import InitProducerIdRequest
from wire_client import (
    PRODUCE_VERSION,
    WireClient,
    batch_of,
    create_topic,
    described,
    fetch,
    produce,
    produce_request,
    stored_batches,
)

PRODUCE = api_for(ProduceRequest)


def _end(wire: WireClient, topic: str) -> int:
    end: int = fetch(wire, topic, 0).high_watermark
    return end


def test_acks_0_is_not_answered(wire: WireClient, topic: str) -> None:
    wire.send(produce_request(topic, batch_of(b"x"), acks=0), PRODUCE_VERSION)
    asked = wire.send(ApiVersionsRequest(), 0)
    assert wire.receive(api_for(ApiVersionsRequest), 0)[0] == asked
    assert _end(wire, topic) == 1


def test_an_error_with_acks_0_closes_the_connection(wire: WireClient, topic: str) -> None:
    corrupt = bytearray(batch_of(b"x"))
    corrupt[-2] ^= 1
    wire.send(produce_request(topic, bytes(corrupt), acks=0), PRODUCE_VERSION)
    assert wire.is_closed_by_broker()


def test_pipelined_produces_are_answered_in_order(wire: WireClient, topic: str) -> None:
    sent = [
        wire.send(produce_request(topic, batch_of(b"%d" % i)), PRODUCE_VERSION) for i in range(100)
    ]
    answers = [wire.receive(PRODUCE, PRODUCE_VERSION) for _ in sent]
    assert [correlation_id for correlation_id, _ in answers] == sent
    placed = [body.responses[0].partition_responses[0] for _, body in answers]
    assert [(part.error_code, part.base_offset) for part in placed] == [(0, i) for i in range(100)]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_by_name(wire: WireClient, topic: str, version: int, acks: int) -> None:
    request = produce_request(topic, batch_of(b"a", b"b"), acks=acks)
    for offset in (0, 2):
        answer = wire.call(request, version).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, offset)
        assert answer.log_append_time_ms == -1
        if version >= 5:
            assert answer.log_start_offset == 0


def test_version_13_names_topics_by_id(wire: WireClient, topic: str) -> None:
    request = produce_request("", batch_of(b"x"))
    request.topic_data[0].topic_id = described(wire, topic).topic_id
    assert wire.call(request, 13).responses[0].partition_responses[0].error_code == 0
    request.topic_data[0].topic_id = uuid.uuid4().bytes
    answer = wire.call(request, 13).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_unknown_topic_and_partition(wire: WireClient, topic: str, unused: str) -> None:
    elsewhere = produce(wire, f"{unused}-missing", batch_of(b"x"))
    assert elsewhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    beyond = produce(wire, topic, batch_of(b"x"), partition=7)
    assert beyond.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described(wire, f"{unused}-missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_wrong_checksum(wire: WireClient, topic: str) -> None:
    corrupt = bytearray(batch_of(b"a value"))
    corrupt[-3] ^= 1
    assert produce(wire, topic, bytes(corrupt)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert produce(wire, topic, batch_of(b"good")).base_offset == 0


@pytest.mark.parametrize("size", [61, 40, 8])
def test_a_truncated_batch(wire: WireClient, topic: str, size: int) -> None:
    whole = batch_of(b"a value of some length")
    answer = produce(wire, topic, whole[:size])
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert _end(wire, topic) == 0


def test_two_batches_at_once(wire: WireClient, topic: str) -> None:
    answer = produce(wire, topic, batch_of(b"one") + batch_of(b"two"))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert _end(wire, topic) == 0


def test_a_batch_beyond_the_limit(wire: WireClient, unused: str) -> None:
    create_topic(wire, unused, 1, {"max.message.bytes": "1000"})
    assert produce(wire, unused, batch_of(b"x" * 1000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(wire, unused, batch_of(b"x" * 900)).base_offset == 0


def test_an_unknown_kind_of_acknowledgement(wire: WireClient, topic: str) -> None:
    response = wire.call(produce_request(topic, batch_of(b"x"), acks=5), PRODUCE_VERSION)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert _end(wire, topic) == 0


def test_a_time_far_in_the_future(wire: WireClient, topic: str) -> None:
    tomorrow = int((time.time() + 86_400) * 1000)
    answer = produce(wire, topic, batch_of(b"x", first_ms=tomorrow))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


class Producer:
    """An idempotent producer that decides its sequences itself."""

    def __init__(self, wire: WireClient, topic: str) -> None:
        self._wire, self._topic = wire, topic
        response = wire.call(InitProducerIdRequest(transactional_id=None), 4)
        assert response.error_code == 0
        self.id, self.epoch = response.producer_id, response.producer_epoch

    def send(self, sequence: int, count: int = 2) -> tuple[int, int]:
        """Error code and base offset."""
        values = [b"%d" % (sequence + index) for index in range(count)]
        batch = batch_of(*values, producer=(self.id, self.epoch, sequence))
        answer = produce(self._wire, self._topic, batch)
        return answer.error_code, answer.base_offset


@pytest.fixture
def producer(wire: WireClient, topic: str) -> Producer:
    return Producer(wire, topic)


def test_any_of_the_last_five_batches_sent_again_gets_its_offset(
    producer: Producer, topic: str, bootstrap: str
) -> None:
    """KIP-98."""
    assert [producer.send(2 * i) for i in range(7)] == [(0, 2 * i) for i in range(7)]
    for i in (2, 3, 4, 5, 6, 2):
        assert producer.send(2 * i) == (0, 2 * i)
    headers = [header for header, _ in stored_batches(bootstrap, topic)]
    assert [header.base_sequence for header in headers] == list(range(0, 14, 2))
    assert producer.send(14) == (0, 14)


def test_a_gap_and_an_old_batch_are_out_of_order(producer: Producer) -> None:
    """KIP-98: 45, since Kafka 4.4 also for batches older than the last five."""
    for i in range(6):
        producer.send(2 * i)
    assert producer.send(14)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(11)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(12) == (0, 12)


def test_an_older_epoch_is_fenced(producer: Producer) -> None:
    producer.epoch = 1
    assert producer.send(0) == (0, 0)
    producer.epoch = 0
    assert producer.send(2)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    producer.epoch = 1
    assert producer.send(2) == (0, 2)


def test_a_new_epoch_begins_at_sequence_0(producer: Producer) -> None:
    producer.send(0)
    producer.epoch = 1
    assert producer.send(2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0) == (0, 2)


def test_each_producer_has_its_own_sequence(wire: WireClient, topic: str) -> None:
    first, second = Producer(wire, topic), Producer(wire, topic)
    assert first.id != second.id
    assert [first.send(0), second.send(0), first.send(2)] == [(0, 0), (0, 2), (0, 4)]
