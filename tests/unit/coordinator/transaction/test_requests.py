"""Requests with needs, which are decided again once these are met."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.shard import Now, Result
from lakelog.coordinator.transaction.ids import Decision
from lakelog.coordinator.transaction.producers import ProducerReply
from lakelog.coordinator.transaction.requests import (
    NO_SEQUENCE,
    LastSequences,
    LogEnds,
    NewProducerId,
    Request,
    WrittenTo,
)
from lakelog.coordinator.transaction.shard import TransactionShard
from lakelog.coordinator.transaction.state import EPOCH_LAST, NO_PRODUCER_ID
from transaction_setup import BUMPING, Producer, Setup, in_virtual_time, run

PLACE = WrittenTo("orders", 0, 1000, 0)


class _Needy(Request):
    """Needs a producer id, and then the end of a log."""

    decided = 0

    def decide(self, _: TransactionShard, __: Now) -> Decision:
        self.decided += 1
        if self.producer_id == NO_PRODUCER_ID:
            return Result(need=NewProducerId())
        if self.sequences is None:
            return Result(need=LogEnds([PLACE]))
        return Result(reply=(self.producer_id, self.sequences))


@in_virtual_time()
async def test_a_request_is_decided_again_once_its_need_is_met(setup: Setup) -> None:
    request = _Needy(future=setup.tasks.future(), key="t")
    setup.coordinator._host.ask(request)
    assert not request.future.done()
    assert await request.future == (1000, {PLACE: NO_SEQUENCE})
    assert request.decided == 3


@in_virtual_time()
async def test_a_request_whose_need_cannot_be_met_is_refused(setup: Setup) -> None:
    setup.producer_logs.fails = True
    request = _Needy(future=setup.tasks.future(), key="t")
    setup.coordinator._host.ask(request)
    assert await request.future is ErrorCode.CONCURRENT_TRANSACTIONS
    setup.gives_producer_ids = False
    request = _Needy(future=setup.tasks.future(), key="t")
    setup.coordinator._host.ask(request)
    assert await request.future is ErrorCode.COORDINATOR_NOT_AVAILABLE


class _Failing(_Needy):
    """Has a bug that shows once one of its needs is met."""

    fails_at = 0

    def decide(self, shard: TransactionShard, now: Now) -> Decision:
        result = super().decide(shard, now)
        if self.decided == self.fails_at:
            raise RuntimeError("planted")
        return result


@pytest.mark.parametrize("fails_at", [2, 3], ids=["with a producer id", "with the ends of logs"])
def test_a_request_is_refused_if_its_decision_fails_after_a_need(
    fails_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(setup: Setup) -> None:
        failing = _Failing(future=setup.tasks.future(), key="t")
        failing.fails_at = fails_at
        waiting = [_Needy(future=setup.tasks.future(), key="t") for _ in range(2)]
        for request in (failing, *waiting):
            setup.coordinator._host.ask(request)
        futures = [request.future for request in (failing, *waiting)]
        first, *others = await asyncio.wait_for(asyncio.gather(*futures), 60)
        assert first is ErrorCode.UNKNOWN_SERVER_ERROR
        assert [sequences for _, sequences in others] == [{PLACE: NO_SEQUENCE}] * 2

    run(scenario)
    bugs = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.__dict__.get("event") for record in bugs] == ["coordinator_failed"]


def test_a_request_is_refused_if_its_need_fails_unexpectedly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(targets: Sequence[WrittenTo]) -> LastSequences:
        raise RuntimeError("planted")

    async def scenario(setup: Setup) -> None:
        setup.producer_logs.last_sequences = fails  # type: ignore[method-assign]
        request = _Needy(future=setup.tasks.future(), key="t")
        setup.coordinator._host.ask(request)
        answer = await asyncio.wait_for(request.future, 60)
        assert answer is ErrorCode.UNKNOWN_SERVER_ERROR

    run(scenario)
    assert any("planted" in str(each.exc_info) for each in caplog.records)


@in_virtual_time()
async def test_a_shard_that_is_unloaded_meanwhile_decides_nothing(setup: Setup) -> None:
    request = _Needy(future=setup.tasks.future(), key="t")
    setup.coordinator._host.ask(request)
    setup.coordinator.unload_partition(0)
    assert await request.future is ErrorCode.NOT_COORDINATOR
    assert request.decided == 1


async def with_a_new_id_at_the_last_epoch(
    setup: Setup,
) -> tuple[Producer, ProducerReply]:
    """Return a transaction whose end replaced the producer id, continuing at the last epoch."""
    producer = await setup.with_epoch(EPOCH_LAST - 1)
    setup.lose_power()
    await setup.restart()
    assert await setup.add(producer, version=BUMPING) == ErrorCode.NONE
    answer = await setup.end(producer, commit=True, version=BUMPING)
    assert answer.code == ErrorCode.NONE
    await setup.settled()
    return producer, answer


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_retry_takes_no_further_producer_id(loses_power: bool) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        producer, first = await with_a_new_id_at_the_last_epoch(setup)
        assert first.producer_id != producer.producer_id
        if loses_power:
            setup.lose_power()
            await setup.restart()
        taken = setup.producer_ids
        for _ in range(3):
            assert await setup.end(producer, commit=True, version=BUMPING) == first
        assert setup.producer_ids == taken

    scenario()


@in_virtual_time()
async def test_a_rejected_end_reserves_no_producer_id(setup: Setup) -> None:
    _, answer = await with_a_new_id_at_the_last_epoch(setup)
    fresh = Producer(answer.producer_id, answer.producer_epoch)
    assert await setup.add(fresh, version=BUMPING) == ErrorCode.NONE
    taken = setup.producer_ids
    old = Producer(fresh.producer_id, 3)
    assert (await setup.end(old, commit=True, version=BUMPING)).code == ErrorCode.PRODUCER_FENCED
    assert setup.producer_ids == taken


@in_virtual_time()
async def test_repeated_requests_reserve_one_producer_id(setup: Setup) -> None:
    _, answer = await with_a_new_id_at_the_last_epoch(setup)
    fresh = Producer(answer.producer_id, answer.producer_epoch)
    assert await setup.add(fresh, version=BUMPING) == ErrorCode.NONE
    taken = setup.producer_ids
    asked = [setup.end(fresh, commit=True, version=BUMPING) for _ in range(5)]
    first, *others = await asyncio.gather(*asked)
    assert first.code == ErrorCode.NONE
    assert {each.code for each in others} == {ErrorCode.CONCURRENT_TRANSACTIONS}
    assert setup.producer_ids == taken + 1
    await setup.settled()
    assert await setup.end(fresh, commit=True, version=BUMPING) == first


@in_virtual_time(ids_max=1)
async def test_one_transactional_id_too_many_reserves_no_producer_id(
    setup: Setup,
) -> None:
    await setup.ready()
    assert (await setup.init("other")).code == ErrorCode.POLICY_VIOLATION
    assert setup.producer_ids == 1


def test_all_waiting_requests_are_refused_after_a_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Setup) -> int:
        raise RuntimeError("planted")

    monkeypatch.setattr(Setup, "next_producer_id", fail)

    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        answers = await asyncio.gather(setup.init("new"), setup.init("new"))
        assert [answer.code for answer in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2

    scenario()
    bugs = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.__dict__.get("event") for record in bugs] == ["coordinator_failed"]


@in_virtual_time()
async def test_all_waiting_requests_fail_if_no_producer_id_can_be_reserved(
    setup: Setup,
) -> None:
    setup.gives_producer_ids = False
    answers = await asyncio.gather(setup.init("new"), setup.init("new"))
    assert [each.code for each in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    setup.gives_producer_ids = True
    assert (await setup.init("new")).code == ErrorCode.NONE
