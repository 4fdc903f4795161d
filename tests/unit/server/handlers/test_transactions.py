from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.errors import MetadataError, MetadataUnavailable
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    PartitionResponse,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from lakelog.server.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)
from memory_broker import MemoryBroker
from memory_clients import GROUP, Producer, add_partition, init_producer
from memory_metadata import FAILED_CHANGES
from storage_kit import append_in_transaction

E = ErrorCode


def of_client(
    world: MemoryBroker, producer: Producer, *indexes: int, version: int = 3
) -> list[int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=list(indexes))],
    )
    return codes(world.ask(add_partitions_to_txn, request, version).results_by_topic_v3_and_below)


def of_broker(
    world: MemoryBroker,
    producer: Producer,
    *indexes: int,
    verify_only: bool = True,
    version: int = 5,
) -> list[int]:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name="orders", partitions=list(indexes))],
    )
    request = AddPartitionsToTxnRequest(transactions=[transaction])
    (result,) = world.ask(add_partitions_to_txn, request, version).results_by_transaction
    assert result.transactional_id == "id"
    return codes(result.topic_results)


def codes(topics: list[AddPartitionsToTxnTopicResult]) -> list[int]:
    return [each.partition_error_code for topic in topics for each in topic.results_by_partition]


def members(world: MemoryBroker) -> set[tuple[str, int]]:
    """Return the partitions of the open transaction."""
    request = DescribeTransactionsRequest(transactional_ids=["id"])
    (found,) = world.ask(describe_transactions, request, 0).transaction_states
    return {(topic.topic, index) for topic in found.topics for index in topic.partitions}


def test_a_client_adds_the_partitions_of_one_transaction(coordinators: MemoryBroker) -> None:
    assert of_client(coordinators, init_producer(coordinators), 0, 1) == [E.NONE, E.NONE]
    assert members(coordinators) == {("orders", 0), ("orders", 1)}


def test_an_unknown_partition_keeps_the_others_from_being_added(
    coordinators: MemoryBroker,
) -> None:
    producer = init_producer(coordinators)
    expected = [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert of_client(coordinators, producer, 0, 2) == expected
    assert of_broker(coordinators, producer, 0, 2, verify_only=False) == expected
    assert members(coordinators) == set()


@pytest.mark.parametrize(
    ("version", "code"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)]
)
def test_a_fenced_client_gets_the_code_of_its_version(
    coordinators: MemoryBroker, version: int, code: ErrorCode
) -> None:
    fenced = init_producer(coordinators)
    init_producer(coordinators)
    assert of_client(coordinators, fenced, 0, version=version) == [code]


def test_a_broker_verifies_or_adds(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    add_partition(coordinators, producer, 0)
    assert of_broker(coordinators, producer, 0) == [E.NONE]
    assert members(coordinators) == {("orders", 0)}
    assert of_broker(coordinators, producer, 1, verify_only=False) == [E.NONE]
    assert members(coordinators) == {("orders", 0), ("orders", 1)}


@pytest.mark.parametrize(
    ("version", "code"), [(4, E.INVALID_TXN_STATE), (5, E.TRANSACTION_ABORTABLE)]
)
def test_transaction_abortable_came_with_version_5(
    coordinators: MemoryBroker, version: int, code: ErrorCode
) -> None:
    producer = init_producer(coordinators)
    add_partition(coordinators, producer, 0)
    assert of_broker(coordinators, producer, 0, 1, version=version) == [E.NONE, code]


def test_an_unknown_producer_is_rejected(coordinators: MemoryBroker) -> None:
    assert of_client(coordinators, Producer(99, 0), 0) == [E.INVALID_PRODUCER_ID_MAPPING]


def test_the_transactions_of_a_request_are_replicated_side_by_side(
    coordinators: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None waits for the record of another one."""
    decided: list[str] = []
    transactions = coordinators.broker.transactions

    def verify(transactional_id: str, *rest: object, add: bool) -> object:
        decided.append(transactional_id)
        future = asyncio.get_running_loop().create_future()
        if len(decided) == 3:
            for each in [*waiting, future]:
                each.set_result({("orders", 0): E.NONE})
        waiting.append(future)
        return future

    waiting: list[Any] = []
    monkeypatch.setattr(transactions, "verify", verify)
    topics = [AddPartitionsToTxnTopic(name="orders", partitions=[0])]
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(transactional_id=name, topics=topics) for name in "abc"
        ]
    )
    results = coordinators.ask(add_partitions_to_txn, request, 5).results_by_transaction
    assert [each.transactional_id for each in results] == decided == ["a", "b", "c"]


def add_offsets(world: MemoryBroker, producer: Producer, version: int = 4) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=GROUP,
    )
    return world.ask(add_offsets_to_txn, request, version).error_code


def test_the_partition_of_the_group_becomes_part_of_the_transaction(
    coordinators: MemoryBroker,
) -> None:
    assert add_offsets(coordinators, init_producer(coordinators)) == E.NONE
    request = DescribeTransactionsRequest(transactional_ids=["id"])
    (found,) = coordinators.ask(describe_transactions, request, 0).transaction_states
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [
        ("__consumer_offsets", [0])
    ]


@pytest.mark.parametrize(
    ("version", "code"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)]
)
def test_a_fenced_client_that_adds_offsets_gets_the_code_of_its_version(
    coordinators: MemoryBroker, version: int, code: ErrorCode
) -> None:
    fenced = init_producer(coordinators)
    init_producer(coordinators)
    assert add_offsets(coordinators, fenced, version) == code


def test_an_unknown_producer_adds_no_offsets(coordinators: MemoryBroker) -> None:
    assert add_offsets(coordinators, Producer(99, 0)) == E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (MetadataUnavailable("the store is gone"), E.NOT_COORDINATOR),
        (EntryOutcome.UNKNOWN, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_without_its_topic_there_is_no_group_coordinator(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.metadata.fault = fault
    assert add_offsets(world, Producer(7, 0)) == code


def end(
    world: MemoryBroker, producer: Producer, *, commit: bool = True, version: int = 4
) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    return world.ask(end_txn, request, version)


@pytest.mark.parametrize("commit", [False, True])
def test_each_partition_of_the_transaction_has_a_marker(
    coordinators: MemoryBroker, commit: bool
) -> None:
    producer = init_producer(coordinators)
    for index in range(2):
        add_partition(coordinators, producer, index)
    response = end(coordinators, producer, commit=commit)
    assert (response.error_code, response.producer_id) == (E.NONE, -1)
    coordinators.pass_time(1)
    ends = [coordinators.partition("orders", index).log.log_end_offset for index in range(2)]
    assert ends == [1, 1]


def test_from_version_5_on_the_response_has_the_producer_of_the_next_transaction(
    coordinators: MemoryBroker,
) -> None:
    producer = init_producer(coordinators)
    add_partition(coordinators, producer)
    response = end(coordinators, producer, version=5)
    assert (response.error_code, response.producer_id) == (E.NONE, producer.producer_id)
    assert response.producer_epoch == producer.epoch + 1


@pytest.mark.parametrize(
    ("version", "code"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)]
)
def test_a_fenced_producer_gets_the_code_of_its_version(
    coordinators: MemoryBroker, version: int, code: ErrorCode
) -> None:
    fenced = init_producer(coordinators)
    init_producer(coordinators)
    assert end(coordinators, fenced, version=version).error_code == code


def test_without_a_transaction_nothing_ends(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    assert end(coordinators, producer).error_code == E.INVALID_TXN_STATE
    unknown = Producer(99, 0)
    assert end(coordinators, unknown).error_code == E.INVALID_PRODUCER_ID_MAPPING


def test_a_commit_that_is_repeated_succeeds_and_an_abort_after_it_fails(
    coordinators: MemoryBroker,
) -> None:
    """The response to the first one may have been lost."""
    producer = init_producer(coordinators)
    add_partition(coordinators, producer)
    end(coordinators, producer)
    coordinators.pass_time(1)
    assert end(coordinators, producer).error_code == E.NONE
    assert end(coordinators, producer, commit=False).error_code == E.INVALID_TXN_STATE


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


def ask_markers(world: MemoryBroker, *markers: WritableTxnMarker) -> WriteTxnMarkersResponse:
    return world.ask(write_txn_markers, WriteTxnMarkersRequest(markers=list(markers)), 1)


def marker_codes(response: WriteTxnMarkersResponse) -> list[int]:
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
    assert marker_codes(ask_markers(world, marker(0))) == [E.NONE]
    assert log.last_stable_offset == log.log_end_offset == 2


@pytest.mark.parametrize("topic", ["orders", "__consumer_offsets"])
def test_a_late_marker_of_another_broker_leaves_the_next_transaction(
    coordinators: MemoryBroker, topic: str
) -> None:
    log = coordinators.partition(topic).log
    now_ms = coordinators.clock.wall_ms()
    append_in_transaction(log, (7, 0, 0), now_ms=now_ms)
    sent = marker(0, topic=topic, decision=3)
    assert marker_codes(ask_markers(coordinators, sent)) == [E.NONE]
    append_in_transaction(log, (7, 0, 1), now_ms=now_ms)
    assert marker_codes(ask_markers(coordinators, sent)) == [E.INVALID_PRODUCER_EPOCH]
    assert log.last_stable_offset == 2
    assert marker_codes(ask_markers(coordinators, marker(0, topic=topic, decision=4))) == [E.NONE]
    assert log.last_stable_offset == 4


def test_each_partition_has_its_result(world: MemoryBroker) -> None:
    world.create("orders")
    assert marker_codes(ask_markers(world, marker(0, 9), marker(0, topic="gone", producer=8))) == [
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_producer_that_is_named_twice_has_one_result(world: MemoryBroker) -> None:
    world.create("orders")
    (result,) = ask_markers(world, marker(0), marker(0)).markers
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
    response = ask_markers(world, marker(0, 9, producer=producer, epoch=epoch))
    assert marker_codes(response) == [code, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.partition("orders").log.log_end_offset == 0


def test_an_older_producer_or_coordinator_is_fenced(world: MemoryBroker) -> None:
    world.create("orders")
    assert marker_codes(ask_markers(world, marker(0, epoch=5, coordinator=5))) == [E.NONE]
    assert marker_codes(ask_markers(world, marker(0, epoch=4, coordinator=5))) == [
        E.INVALID_PRODUCER_EPOCH
    ]
    assert marker_codes(ask_markers(world, marker(0, epoch=5, coordinator=4))) == [
        E.TRANSACTION_COORDINATOR_FENCED
    ]


def test_the_group_coordinator_writes_markers_of_its_partitions(
    coordinators: MemoryBroker,
) -> None:
    assert marker_codes(ask_markers(coordinators, marker(0, topic="__consumer_offsets"))) == [
        E.NONE
    ]


def describe(world: MemoryBroker, *names: str) -> list[DescribedTransaction]:
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    return world.ask(describe_transactions, request, 0).transaction_states


def test_a_transaction_has_its_partitions_and_its_age(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    (idle,) = describe(coordinators, "id")
    assert (idle.transaction_state, idle.topics) == ("Empty", [])
    begun = coordinators.clock.wall_ms()
    add_partition(coordinators, producer)
    (found,) = describe(coordinators, "id")
    assert (found.error_code, found.transaction_state) == (E.NONE, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == producer
    assert (found.transaction_start_time_ms, found.transaction_timeout_ms) == (begun, 60_000)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("orders", [0])]


def test_each_unknown_id_is_an_error(coordinators: MemoryBroker) -> None:
    init_producer(coordinators)
    codes = {
        each.transactional_id: each.error_code for each in describe(coordinators, "id", "gone", "")
    }
    assert codes == {
        "id": E.NONE,
        "gone": E.TRANSACTIONAL_ID_NOT_FOUND,
        "": E.INVALID_REQUEST,
    }


def test_without_its_partition_an_id_has_no_coordinator(world: MemoryBroker) -> None:
    assert [each.error_code for each in describe(world, "id")] == [E.NOT_COORDINATOR]


@pytest.fixture
def producer(coordinators: MemoryBroker) -> Producer:
    """Begin a transaction of `id`, then wait for 30 s; `idle` has none."""
    init_producer(coordinators, "idle")
    producer = init_producer(coordinators, "id")
    add_partition(coordinators, producer)
    coordinators.pass_time(30)
    return producer


def names(world: MemoryBroker, version: int = 2, **filters: Any) -> set[str]:
    response = world.ask(list_transactions, ListTransactionsRequest(**filters), version)
    assert response.error_code == ErrorCode.NONE
    return {each.transactional_id for each in response.transaction_states}


def test_transactions_are_filtered(coordinators: MemoryBroker, producer: Producer) -> None:
    assert names(coordinators, 0) == {"id", "idle"}
    assert names(coordinators, 0, state_filters=["Ongoing"]) == {"id"}
    assert names(coordinators, 0, producer_id_filters=[producer.producer_id]) == {"id"}
    open_since = {"state_filters": ["Ongoing"], "duration_filter": 20_000}
    assert names(coordinators, 1, **open_since) == {"id"}
    assert names(coordinators, 1, **open_since | {"duration_filter": 60_000}) == set()
    assert names(coordinators, 2, transactional_id_pattern="id.e") == {"idle"}


@pytest.mark.usefixtures("producer")
def test_unknown_states_are_named(coordinators: MemoryBroker) -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"])
    response = coordinators.ask(list_transactions, request, 0)
    assert response.unknown_state_filters == ["Nonsense"]
    assert [each.transactional_id for each in response.transaction_states] == ["id"]


def test_a_pattern_that_cannot_be_compiled_is_an_error(coordinators: MemoryBroker) -> None:
    request = ListTransactionsRequest(transactional_id_pattern="(")
    response = coordinators.ask(list_transactions, request, 2)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def ask(
    world: MemoryBroker,
    transactional_id: str | None = None,
    producer: tuple[int, int] = (-1, -1),
    *,
    timeout_ms: int = 60_000,
    version: int = 5,
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )
    return world.ask(init_producer_id, request, version)


def test_each_idempotent_producer_has_an_id_of_its_own(world: MemoryBroker) -> None:
    first, second = ask(world), ask(world)
    assert first.producer_id != second.producer_id
    assert {first.producer_epoch, second.producer_epoch} == {0}
    bumped = ask(world, producer=(first.producer_id, 0))
    assert bumped.producer_id > second.producer_id, "KIP-360: a new id instead of a new epoch"


def test_a_transactional_producer_fences_its_predecessor(coordinators: MemoryBroker) -> None:
    first = ask(coordinators, "id")
    second = ask(coordinators, "id")
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    late = ask(coordinators, "id", (first.producer_id, first.producer_epoch))
    assert (late.error_code, late.producer_id, late.producer_epoch) == (E.PRODUCER_FENCED, -1, -1)


@pytest.mark.parametrize(
    ("version", "code"), [(3, E.INVALID_PRODUCER_EPOCH), (4, E.PRODUCER_FENCED)]
)
def test_producer_fenced_came_with_version_4(
    coordinators: MemoryBroker, version: int, code: ErrorCode
) -> None:
    init_producer(coordinators)
    producer_id, _ = init_producer(coordinators)
    assert ask(coordinators, "id", (producer_id, 0), version=version).error_code == code


@pytest.mark.parametrize(
    ("transactional_id", "producer", "timeout_ms", "code"),
    [
        ("", (-1, -1), 60_000, E.INVALID_REQUEST),
        ("id", (7, -1), 60_000, E.INVALID_REQUEST),
        (None, (-1, 0), 60_000, E.INVALID_REQUEST),
        ("id", (-1, -1), 0, E.INVALID_TRANSACTION_TIMEOUT),
        ("id", (-1, -1), 1_000_000, E.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_a_bad_request_gets_no_producer(
    coordinators: MemoryBroker,
    transactional_id: str | None,
    producer: tuple[int, int],
    timeout_ms: int,
    code: ErrorCode,
) -> None:
    response = ask(coordinators, transactional_id, producer, timeout_ms=timeout_ms)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize(("fault", "code"), FAILED_CHANGES)
def test_without_a_block_of_ids_there_is_no_producer(
    world: MemoryBroker, fault: MetadataError | EntryOutcome, code: ErrorCode
) -> None:
    world.metadata.fault = fault
    response = ask(world)
    assert (response.error_code, response.producer_id) == (code, -1)


def test_without_its_partition_a_transactional_id_has_no_coordinator(world: MemoryBroker) -> None:
    assert ask(world, "id").error_code == E.NOT_COORDINATOR


def ask_producers(
    world: MemoryBroker, topic: str, *indexes: int, times: int = 1
) -> list[PartitionResponse]:
    wanted = [TopicRequest(name=topic, partition_indexes=list(indexes))] * times
    (found,) = world.ask(describe_producers, DescribeProducersRequest(topics=wanted), 0).topics
    assert found.name == topic
    return found.partitions


def test_a_producer_has_its_last_batch_and_its_transaction(world: MemoryBroker) -> None:
    world.create("orders", 2)
    world.append("orders", producer=(6, 2, 0), count=3)
    now = world.clock.wall_ms()
    append_in_transaction(world.partition("orders").log, (7, 1, 0), now_ms=now)
    filled, empty = ask_producers(world, "orders", 0, 1)
    idempotent, transactional = filled.active_producers
    assert (idempotent.producer_id, idempotent.producer_epoch, idempotent.last_sequence) == (
        6,
        2,
        2,
    )
    assert idempotent.current_txn_start_offset == -1
    assert (transactional.producer_id, transactional.current_txn_start_offset) == (7, 3)
    assert transactional.last_timestamp == now
    assert (empty.error_code, empty.active_producers) == (E.NONE, [])


def test_only_the_named_producers_are_returned(world: MemoryBroker) -> None:
    world.create("orders")
    for producer_id in (6, 7):
        world.append("orders", producer=(producer_id, 0, 0))
    wanted = DescribeProducersRequest(
        topics=[TopicRequest(name="orders", partition_indexes=[0])], producer_ids=[7, 9]
    )
    (topic,) = world.ask(describe_producers, wanted, 0).topics
    assert [each.producer_id for each in topic.partitions[0].active_producers] == [7]


def test_a_partition_that_is_named_twice_has_one_result(world: MemoryBroker) -> None:
    world.create("orders")
    assert len(ask_producers(world, "orders", 0, 0, times=2)) == 1


@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("gone", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 9, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", 0, E.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_an_unknown_partition_is_an_error(
    world: MemoryBroker, topic: str, index: int, code: ErrorCode
) -> None:
    world.create("orders")
    (found,) = ask_producers(world, topic, index)
    assert (found.error_code, found.partition_index) == (code, index)
