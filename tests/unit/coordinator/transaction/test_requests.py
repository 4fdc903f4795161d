"""Requests with needs, which are decided again once these are met."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.shard import Now, Result
from lakelog.coordinator.transaction.ids import Decision
from lakelog.coordinator.transaction.producer_id_reservations import NewProducerId
from lakelog.coordinator.transaction.requests import (
    NO_SEQUENCE,
    LastSequences,
    LogEnds,
    Request,
    WrittenTo,
)
from lakelog.coordinator.transaction.shard import TransactionShard
from lakelog.coordinator.transaction.state import NO_PRODUCER_ID
from transaction_setup import Setup, in_virtual_time, run

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
