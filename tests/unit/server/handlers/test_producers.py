from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.producers import (
    DescribeProducersRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionResponse,
    TopicRequest,
)
from lakelog.server.handlers.producers import describe_producers, init_producer_id
from memory_broker import MemoryBroker
from memory_clients import init_producer
from memory_metadata import FAILED_CHANGES
from storage_kit import append_in_transaction

E = ErrorCode


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
