from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.transactions import ListTransactionsRequest
from lakelog.server.handlers.list_transactions import handle
from memory_broker import MemoryBroker
from memory_clients import Producer, add_partition, init_producer


@pytest.fixture
def producer(coordinators: MemoryBroker) -> Producer:
    """Begin a transaction of `id`, then wait for 30 s; `idle` has none."""
    init_producer(coordinators, "idle")
    producer = init_producer(coordinators, "id")
    add_partition(coordinators, producer)
    coordinators.pass_time(30)
    return producer


def names(world: MemoryBroker, version: int = 2, **filters: Any) -> set[str]:
    response = world.ask(handle, ListTransactionsRequest(**filters), version)
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
    response = coordinators.ask(handle, request, 0)
    assert response.unknown_state_filters == ["Nonsense"]
    assert [each.transactional_id for each in response.transaction_states] == ["id"]


def test_a_pattern_that_cannot_be_compiled_is_an_error(coordinators: MemoryBroker) -> None:
    request = ListTransactionsRequest(transactional_id_pattern="(")
    response = coordinators.ask(handle, request, 2)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
