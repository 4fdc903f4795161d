"""Adding and verifying partitions; describing and listing transactions."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction import transitions
from lakelog.coordinator.transaction.coordinator import PartitionCodes
from lakelog.coordinator.transaction.producers import EndTransaction, fenced_code
from lakelog.coordinator.transaction.state import TransactionVersion
from lakelog.coordinator.transaction.transitions import End
from lakelog.protocol.transactions import EndTxnResponse
from transaction_setup import BUMPING, Producer, Setup, in_virtual_time

NONE = ErrorCode.NONE


A, B = ("orders", 0), ("orders", 1)


async def verify(
    setup: Setup, producer: Producer, *keys: tuple[str, int], add: bool = False
) -> PartitionCodes:
    return await setup.coordinator.verify("t", *producer, keys, add=add)


@in_virtual_time()
async def test_kip_890_only_added_partitions_are_verified(setup: Setup) -> None:
    producer = await setup.ready()
    assert await verify(setup, producer, A) == {A: ErrorCode.TRANSACTION_ABORTABLE}
    await setup.add(producer, A)
    assert await verify(setup, producer, A, B) == {A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    older = Producer(producer.producer_id, producer.epoch - 1)
    assert await verify(setup, older, A) == {A: ErrorCode.PRODUCER_FENCED}
    assert await verify(setup, Producer(1, 0), A) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@in_virtual_time()
async def test_verification_may_add(setup: Setup) -> None:
    producer = await setup.ready()
    assert await verify(setup, producer, A, add=True) == {A: NONE}
    assert await verify(setup, producer, A) == {A: NONE}
    assert setup.state() == "Ongoing"


@in_virtual_time()
async def test_an_ended_transaction_verifies_nothing(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, A)
    setup.markers.delay_s = lambda: 1000.0
    await setup.end(producer, commit=True)
    assert await verify(setup, producer, A) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}


@in_virtual_time()
async def test_several_may_be_added_at_once(setup: Setup) -> None:
    """A producer with KIP-890 adds partitions with first batches, several at a time."""
    producer = await setup.ready()
    setup.log.delay_s = lambda: 1.0
    keys = [("orders", index) for index in range(8)]
    codes = await asyncio.gather(*(setup.add(producer, key, version=BUMPING) for key in keys))
    assert codes == [NONE] * 8
    answer = await setup.end(producer, commit=True, version=BUMPING)
    assert answer.code == NONE
    await setup.settled()
    assert {(marker.topic, marker.partition) for marker in setup.markers.written} == set(keys)


@in_virtual_time()
async def test_adding_the_same_again_writes_nothing(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, A, B)
    appends = setup.log.appends
    assert await setup.add(producer, B) == NONE
    assert setup.log.appends == appends


@in_virtual_time()
async def test_a_partition_whose_adding_failed_is_not_in_the_transaction(
    setup: Setup,
) -> None:
    producer = await setup.ready()
    setup.log.fate = lambda: "refused"
    assert await setup.add(producer, A) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    setup.log.fate = lambda: "ok"
    assert setup.state() == "Empty"


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, 2, ErrorCode.PRODUCER_FENCED),
        (ErrorCode.NOT_COORDINATOR, 0, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_older_clients_know_a_fenced_producer_by_its_epoch(
    code: ErrorCode, version: int, expected: ErrorCode
) -> None:
    assert fenced_code(code, version) is expected


def _end(future: Future[EndTxnResponse], version: int) -> EndTransaction:
    end = End(transitions.Producer(7, 2), True, TransactionVersion.BUMPING)
    return EndTransaction(future=future, key="t", end=end, version=version)


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
def test_a_fenced_producer_gets_the_code_of_its_version(version: int, code: ErrorCode) -> None:
    future = Future[EndTxnResponse]()
    _end(future, version).refuse(ErrorCode.PRODUCER_FENCED)
    assert future.result().error_code == code


@in_virtual_time()
async def test_the_response_has_the_producer_of_the_next_transaction(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer, A)
    ended = await setup.end(producer, commit=True, version=BUMPING)
    assert (ended.code, ended.producer_id) == (NONE, producer.producer_id)
    assert ended.producer_epoch == producer.epoch + 1
    await setup.settled()
    assert setup.identity() == Producer(ended.producer_id, ended.producer_epoch)
