from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.admin.transactions import ActiveProducer, SinkChild, SinkControl, Transactions
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError
from lakelog.protocol.commit_sets import ChildState, SinkState
from lakelog.protocol.transactions import (
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    PartitionResponse,
    ProducerState,
    TopicData,
    TopicResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from scripted_broker import ScriptedBroker

KEY = ("orders", 0)


def test_transactions_of_all_brokers_are_listed_with_their_coordinator(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    with ScriptedBroker(node_id=2) as other:
        broker.peers = [other]
        other.peers = [broker]
        for each, name in ((broker, "b"), (other, "a")):
            row = ListedTransaction(
                transactional_id=name, producer_id=7, transaction_state="Ongoing"
            )
            each.on(ListTransactionsRequest, ListTransactionsResponse(transaction_states=[row]))
        found = Transactions(cluster).list(states=["Ongoing"], longer_than_ms=5)
        assert [(row.transactional_id, row.node_id) for row in found] == [("a", 2), ("b", 1)]
        (request,) = other.asked(ListTransactionsRequest)
    assert (request.state_filters, request.duration_filter) == (["Ongoing"], 5)


def test_a_sink_is_listed_and_described_with_its_control_record(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    rows = [
        ListedTransaction(transactional_id="billing", transaction_state="Ongoing"),
        ListedTransaction(transactional_id="daily", next_batch=-1, open_children=2),
    ]
    broker.on(ListTransactionsRequest, ListTransactionsResponse(transaction_states=rows))
    found = Transactions(cluster).list()
    assert [(row.next_batch, row.open_children) for row in found] == [(None, 0), (-1, 2)]
    child = ChildState(
        transactional_id="daily/0/0/0", state="Ongoing", start_time_ms=5, partitions=3
    )
    sink = SinkState(query_id="q", run_id="r", next_batch=4)
    state = DescribedTransaction(transactional_id="daily", sink=sink, children=[child])
    broker.on(DescribeTransactionsRequest, DescribeTransactionsResponse(transaction_states=[state]))
    children = (SinkChild("daily/0/0/0", "Ongoing", 5, 3),)
    assert Transactions(cluster).describe("daily").sink == SinkControl("q", "r", 4, children)


def test_an_unknown_id_is_an_error(broker: ScriptedBroker, cluster: Cluster) -> None:
    row = DescribedTransaction(error_code=105, transactional_id="billing")
    response = DescribeTransactionsResponse(transaction_states=[row])
    broker.on(DescribeTransactionsRequest, response)
    with pytest.raises(ClientError, match="transactional id 'billing': the transactional id does"):
        Transactions(cluster).describe("billing")


def test_producers_are_requested_from_the_leader(broker: ScriptedBroker, cluster: Cluster) -> None:
    states = [ProducerState(producer_id=number, producer_epoch=1) for number in (9, 3)]
    rows = [PartitionResponse(active_producers=states), PartitionResponse(error_code=6)]
    responses = [
        DescribeProducersResponse(topics=[TopicResponse(name="orders", partitions=[row])])
        for row in rows
    ]
    broker.on(DescribeProducersRequest, responses[1], responses[0])
    found = Transactions(cluster).producers(KEY)
    assert [producer.producer_id for producer in found] == [3, 9]


def opened(*producers: tuple[int, int]) -> DescribeProducersResponse:
    """Producers of `orders`-0 by id, with the start offsets of their transactions."""
    states = [
        ProducerState(producer_id=producer_id, current_txn_start_offset=start)
        for producer_id, start in producers
    ]
    row = PartitionResponse(partition_index=0, active_producers=states)
    return DescribeProducersResponse(topics=[TopicResponse(name="orders", partitions=[row])])


def test_hanging_transactions_are_open_and_unknown_to_all_coordinators(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    """Producer 3 is in a transaction of another partition, 5 has just ended, 9 has none."""
    producers = (3, 10), (4, 11), (5, 12), (7, 13), (9, -1)
    broker.on(DescribeProducersRequest, opened(*producers), opened(*producers[:2], *producers[3:]))
    listed = [
        ListedTransaction(
            transactional_id=name, producer_id=producer_id, transaction_state="Ongoing"
        )
        for name, producer_id in (("a", 3), ("b", 4))
    ]
    broker.on(ListTransactionsRequest, ListTransactionsResponse(transaction_states=listed))
    states = [
        DescribeTransactionsResponse(
            transaction_states=[
                DescribedTransaction(
                    transactional_id=name,
                    producer_id=producer_id,
                    topics=[TopicData(topic=topic, partitions=[0])],
                )
            ]
        )
        for name, producer_id, topic in (("a", 3, "other"), ("b", 4, "orders"))
    ]
    broker.on(DescribeTransactionsRequest, *states)
    found = Transactions(cluster).hanging(["orders"])
    hanging = [(each.topic, each.partition, each.producer.producer_id) for each in found]
    assert hanging == [("orders", 0, 3), ("orders", 0, 7)]
    (request,) = broker.asked(ListTransactionsRequest)
    assert request.producer_id_filters == [3, 4, 5, 7]


def test_without_open_transactions_no_coordinator_is_asked(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(DescribeProducersRequest, opened((3, -1)))
    assert Transactions(cluster).hanging(["orders"]) == []
    assert broker.asked(ListTransactionsRequest) == []


@pytest.mark.parametrize(("epoch", "sent"), [(-1, 0), (4, 4)])
def test_a_hanging_transaction_is_aborted_with_the_epoch_of_its_coordinator(
    broker: ScriptedBroker, cluster: Cluster, epoch: int, sent: int
) -> None:
    """KIP-664: -1 is that of a producer that has no marker yet."""
    producer = ActiveProducer(7, 2, 0, 0, epoch, 40)
    broker.on(WriteTxnMarkersRequest, written(0))
    Transactions(cluster).abort(KEY, producer)
    (marker,) = broker.asked(WriteTxnMarkersRequest)[0].markers
    assert (marker.coordinator_epoch, marker.transaction_result) == (sent, False)
    assert (marker.producer_id, marker.producer_epoch) == (7, 2)


def test_a_producer_that_continued_is_not_aborted(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.on(WriteTxnMarkersRequest, written(47))
    with pytest.raises(ClientError, match="marker for orders-0") as error:
        Transactions(cluster).abort(KEY, ActiveProducer(7, 2, 0, 0, 1, 40))
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def written(code: int) -> WriteTxnMarkersResponse:
    row = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topic = WritableTxnMarkerTopicResult(name="orders", partitions=[row])
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=[topic])])
