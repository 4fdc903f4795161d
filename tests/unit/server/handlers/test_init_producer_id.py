from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.store.api import EntryOutcome
from lakelog.protocol.producers import InitProducerIdRequest, InitProducerIdResponse
from lakelog.server.handlers.init_producer_id import handle
from memory_broker import MemoryBroker
from memory_clients import init_producer
from memory_metadata import FAILED_CHANGES

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
    return world.ask(handle, request, version)


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
