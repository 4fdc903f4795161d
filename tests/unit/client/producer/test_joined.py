"""Records in the transaction of another process."""

from __future__ import annotations

from lakelog.client.producer.joined import JoinedProducer
from lakelog.protocol.end_txn import EndTxnRequest
from lakelog.protocol.init_producer_id import InitProducerIdRequest
from lakelog.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.records.batch import read_header
from scripted_broker import ScriptedBroker


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
