"""Transactions that wait for a coordinator share a request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from lakelog.runtime.aio import AsyncioTasks
from lakelog.server.coordinators import verification_queue
from lakelog.server.coordinators.verification_queue import Codes, VerificationQueue

E = ErrorCode


class SlowCoordinator:
    """Answers a request when it is released, in reverse order of its transactions."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.failure: Exception | None = None
        self.released = asyncio.Semaphore(0)

    async def ask(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        self.requests.append([each.transactional_id for each in request.transactions])
        await self.released.acquire()
        if self.failure is not None:
            raise self.failure
        results = [_result(each) for each in reversed(request.transactions)]
        return AddPartitionsToTxnResponse(results_by_transaction=results)


def _result(each: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    code = E.NONE if each.producer_epoch == 0 else E.PRODUCER_FENCED
    rows = [AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)]
    topic = AddPartitionsToTxnTopicResult(name="orders", results_by_partition=rows)
    return AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=[topic])


def transaction(name: str, epoch: int = 0) -> AddPartitionsToTxnTransaction:
    topics = [AddPartitionsToTxnTopic(name="orders", partitions=[0])]
    return AddPartitionsToTxnTransaction(transactional_id=name, producer_epoch=epoch, topics=topics)


async def submitted(
    coordinator: SlowCoordinator, *first: AddPartitionsToTxnTransaction
) -> tuple[VerificationQueue, list[asyncio.Future[Codes]]]:
    """Submit transactions one after another while the first one is under way."""
    queue = VerificationQueue(coordinator.ask, AsyncioTasks(asyncio.get_running_loop()), "2")
    futures = []
    for each in first:
        futures.append(queue.submit(each))
        await asyncio.sleep(0)
    return queue, futures


async def codes_of(futures: list[asyncio.Future[Codes]]) -> list[ErrorCode]:
    return [dict(await each)["orders", 0] for each in futures]


def test_waiting_transactions_share_the_next_request() -> None:
    async def scenario() -> None:
        coordinator = SlowCoordinator()
        names = [transaction(name, epoch=name == "c") for name in "abcd"]
        _, futures = await submitted(coordinator, *names)
        coordinator.released.release()
        coordinator.released.release()
        assert await codes_of(futures) == [E.NONE, E.NONE, E.PRODUCER_FENCED, E.NONE]
        assert coordinator.requests == [["a"], ["b", "c", "d"]]

    asyncio.run(scenario())


def test_a_request_names_a_transactional_id_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification_queue, "BATCH_MAX", 2)

    async def scenario() -> None:
        coordinator = SlowCoordinator()
        names = [transaction("a"), transaction("b"), transaction("b", 1), transaction("c")]
        queue, futures = await submitted(coordinator, *names, transaction("d"))
        for _ in range(4):
            coordinator.released.release()
        expected = [E.NONE, E.NONE, E.PRODUCER_FENCED, E.NONE, E.NONE]
        assert await codes_of(futures) == expected
        assert coordinator.requests == [["a"], ["b", "c"], ["b", "d"]]
        assert await codes_of([queue.submit(transaction("e"))]) == [E.NONE]

    asyncio.run(scenario())


@pytest.mark.parametrize("failure", [KafkaError(E.REQUEST_TIMED_OUT), ValueError("a defect")])
def test_a_failed_request_ends_the_wait_of_all(failure: Exception) -> None:
    """A broker that hangs must not keep each of them for a time limit of its own."""

    async def scenario() -> None:
        coordinator = SlowCoordinator()
        coordinator.failure = failure
        queue, futures = await submitted(coordinator, transaction("a"), transaction("b"))
        sending: Any = queue._sending
        coordinator.released.release()
        if isinstance(failure, ValueError):
            with pytest.raises(ValueError, match="a defect"):
                await sending
        assert set(await codes_of(futures)) == {E.COORDINATOR_NOT_AVAILABLE}
        assert coordinator.requests == [["a"]]

    asyncio.run(scenario())
