from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.transactions import EndTxnRequest, EndTxnResponse
from lakelog.server.handlers.end_txn import handle
from memory_broker import MemoryBroker
from memory_clients import Producer, add_partition, init_producer

E = ErrorCode


def end(
    world: MemoryBroker, producer: Producer, *, commit: bool = True, version: int = 4
) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    return world.ask(handle, request, version)


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
