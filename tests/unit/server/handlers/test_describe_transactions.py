from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.transactions import DescribedTransaction, DescribeTransactionsRequest
from lakelog.server.handlers.describe_transactions import handle
from memory_broker import MemoryBroker
from memory_clients import add_partition, init_producer

E = ErrorCode


def ask(world: MemoryBroker, *names: str) -> list[DescribedTransaction]:
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    return world.ask(handle, request, 0).transaction_states


def test_a_transaction_has_its_partitions_and_its_age(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    (idle,) = ask(coordinators, "id")
    assert (idle.transaction_state, idle.topics) == ("Empty", [])
    begun = coordinators.clock.wall_ms()
    add_partition(coordinators, producer)
    (found,) = ask(coordinators, "id")
    assert (found.error_code, found.transaction_state) == (E.NONE, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == producer
    assert (found.transaction_start_time_ms, found.transaction_timeout_ms) == (begun, 60_000)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("orders", [0])]


def test_each_unknown_id_is_an_error(coordinators: MemoryBroker) -> None:
    init_producer(coordinators)
    codes = {each.transactional_id: each.error_code for each in ask(coordinators, "id", "gone", "")}
    assert codes == {
        "id": E.NONE,
        "gone": E.TRANSACTIONAL_ID_NOT_FOUND,
        "": E.INVALID_REQUEST,
    }


def test_without_its_partition_an_id_has_no_coordinator(world: MemoryBroker) -> None:
    assert [each.error_code for each in ask(world, "id")] == [E.NOT_COORDINATOR]
