"""Transactions of one producer.

Records in the transaction of another process.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.committed import Membership
from lakelog.client.errors import ClientError, UnsupportedError
from lakelog.client.producer.transactional import JoinedProducer, TransactionalProducer
from lakelog.protocol.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from lakelog.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.protocol.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from lakelog.records.batch import read_header
from scripted_broker import Answer, ScriptedBroker


def answering(code: int) -> Answer:
    def answer(request: ProduceRequest) -> ProduceResponse:
        asked = request.topic_data[0]
        row = PartitionProduceResponse(
            index=asked.partition_data[0].index, error_code=code, base_offset=1
        )
        topic = TopicProduceResponse(
            name=asked.name, topic_id=asked.topic_id, partition_responses=[row]
        )
        return ProduceResponse(responses=[topic])

    return answer


@pytest.fixture
def producer(broker: ScriptedBroker) -> Iterator[TransactionalProducer]:
    broker.on(InitProducerIdRequest, InitProducerIdResponse(producer_id=9, producer_epoch=4))
    broker.on(ProduceRequest, answering(0))
    broker.on(EndTxnRequest, EndTxnResponse(producer_id=9, producer_epoch=5))
    with TransactionalProducer(broker.address, "billing-1", linger_ms=0) as producer:
        yield producer


def ends(broker: ScriptedBroker) -> list[tuple[int, bool]]:
    return [(request.producer_epoch, request.committed) for request in broker.asked(EndTxnRequest)]


def test_each_transaction_has_the_epoch_that_the_last_end_returned(
    broker: ScriptedBroker, producer: TransactionalProducer
) -> None:
    """KIP-890."""
    for _ in range(2):
        with producer.transaction():
            producer.send("orders", b"v", partition=0)
    assert ends(broker) == [(4, True), (5, True)]
    requests = broker.asked(ProduceRequest)
    headers = [read_header(request.topic_data[0].partition_data[0].records) for request in requests]
    assert [(header.producer_epoch, header.base_sequence) for header in headers] == [(4, 0), (5, 0)]
    assert all(header.is_transactional for header in headers)
    assert requests[0].transactional_id == "billing-1"


def test_a_block_that_raises_is_aborted(
    broker: ScriptedBroker, producer: TransactionalProducer
) -> None:
    with pytest.raises(ZeroDivisionError), producer.transaction():
        producer.send("orders", b"v").result()
        raise ZeroDivisionError
    assert ends(broker) == [(4, False)]


def test_a_transaction_with_a_lost_record_can_only_be_aborted(
    broker: ScriptedBroker, producer: TransactionalProducer
) -> None:
    broker.on(ProduceRequest, answering(ErrorCode.MESSAGE_TOO_LARGE), answering(0))
    producer.begin()
    producer.send("orders", b"v")
    with pytest.raises(ClientError, match="MESSAGE_TOO_LARGE"):
        producer.commit()
    with pytest.raises(ClientError, match="can only be aborted"):
        producer.send("orders", b"v")
    producer.abort()
    assert ends(broker) == [(4, False)]


def test_records_outside_of_a_transaction_are_rejected(producer: TransactionalProducer) -> None:
    with pytest.raises(ClientError, match="no transaction has begun"):
        producer.send("orders", b"v")
    producer.begin()
    with pytest.raises(ClientError, match="a transaction has begun"):
        producer.begin()


def test_offsets_of_a_removed_member_abort_the_transaction(
    broker: ScriptedBroker, producer: TransactionalProducer
) -> None:
    """KIP-447: another member processes the same records."""
    row = TxnOffsetCommitResponsePartition(partition_index=0, error_code=22)
    topic = TxnOffsetCommitResponseTopic(name="orders", partitions=[row])
    broker.on(TxnOffsetCommitRequest, TxnOffsetCommitResponse(topics=[topic]))
    producer.begin()
    with pytest.raises(ClientError) as error:
        producer.send_offsets("g", {("orders", 0): 42}, Membership("m", 3))
    assert error.value.code is ErrorCode.ILLEGAL_GENERATION
    (request,) = broker.asked(TxnOffsetCommitRequest)
    assert (request.member_id, request.generation_id_or_member_epoch) == ("m", 3)
    assert (request.producer_id, request.producer_epoch) == (9, 4)
    with pytest.raises(ClientError, match="can only be aborted"):
        producer.commit()


def test_the_previous_transaction_is_awaited(
    broker: ScriptedBroker, producer: TransactionalProducer
) -> None:
    busy = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
    broker.on(InitProducerIdRequest, busy, InitProducerIdResponse(producer_id=9, producer_epoch=6))
    producer.begin()
    producer.send("orders", b"v")
    producer.commit()
    assert ends(broker) == [(6, True)]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_coordinator_is_not_asked_to_end_an_empty_transaction(
    broker: ScriptedBroker, producer: TransactionalProducer, commit: bool
) -> None:
    """It rejects the commit of a transaction without partitions (KIP-890)."""
    broker.on(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))
    producer.begin()
    producer.send_values("orders", [])
    producer.send_table(pa.table({"value": pa.array([], pa.binary())}), "orders")
    producer.send_offsets("g", {})
    (producer.commit if commit else producer.abort)()
    assert ends(broker) == []
    broker.on(EndTxnRequest, EndTxnResponse(producer_id=9, producer_epoch=5))
    with producer.transaction():
        producer.send("orders", b"v")
    assert ends(broker) == [(4, True)]


def test_a_shared_transaction_ends_although_its_owner_has_sent_nothing(
    broker: ScriptedBroker, producer: TransactionalProducer
) -> None:
    producer.begin()
    with JoinedProducer(broker.address, "billing-1", producer.share(), linger_ms=0) as joined:
        joined.send("orders", b"v")
    producer.commit()
    producer.begin()
    producer.commit()
    assert ends(broker) == [(4, True)]


def test_a_broker_that_does_not_raise_epochs_is_not_supported(
    broker: ScriptedBroker, producer: TransactionalProducer
) -> None:
    broker.versions[26] = (0, 4)
    with pytest.raises(UnsupportedError, match=r"transaction\.version 2"):
        producer.begin()


def written(request: ProduceRequest) -> ProduceResponse:
    asked = request.topic_data[0]
    row = PartitionProduceResponse(index=asked.partition_data[0].index, base_offset=1)
    topic = TopicProduceResponse(
        name=asked.name, topic_id=asked.topic_id, partition_responses=[row]
    )
    return ProduceResponse(responses=[topic])


def test_records_have_the_identity_of_the_owner_and_the_transaction_stays_open(
    broker: ScriptedBroker,
) -> None:
    broker.on(ProduceRequest, written)
    with JoinedProducer(broker.address, "sink-1", (9, 4), linger_ms=0) as producer:
        producer.send("orders", b"v", partition=0)
    (request,) = broker.asked(ProduceRequest)
    header = read_header(request.topic_data[0].partition_data[0].records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 4, 0)
    assert header.is_transactional
    assert request.transactional_id == "sink-1"
    assert not broker.asked(InitProducerIdRequest)
    assert not broker.asked(EndTxnRequest)
