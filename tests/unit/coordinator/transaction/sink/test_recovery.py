"""A sink whose coordinator dies at each of its appends, with and without the record in the log.

The query repeats its requests, and begins a new run where its own process dies too. In the end each
batch is visible once, whichever append was the last of the coordinator.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.ids import TransactionConfig
from lakelog.protocol.commit_sets import Refusal, Winner
from sink_setup import Producer, Setup, Sinks, again, reason, winner
from transaction_setup import run
from waiting import until

BATCHES = 3
TASKS = 2


class Query:
    """A driver with its tasks; it remembers nothing but its checkpoint, as Spark does."""

    def __init__(self, setup: Setup) -> None:
        self.sinks = Sinks(setup)
        self.setup = setup
        self.runs = self.attempts = 0
        self.parent = Producer(-1, -1)

    @property
    def run_id(self) -> str:
        return f"run-{self.runs}"

    async def begin(self) -> int:
        """Begin a new run; return the next batch, 0 before the first commit."""
        self.runs += 1
        answer = await again(lambda: self.sinks.begin(self.run_id))
        assert reason(answer) is None
        assert answer.sink is not None
        self.parent = Producer(answer.producer_id, answer.producer_epoch)
        return max(answer.sink.next_batch, 0)

    async def task(self, batch: int, task: int) -> Winner:
        """Write one record to each of two partitions; repeat with another attempt if it fails."""
        while True:
            self.attempts += 1
            name = self.sinks.name(batch, task, self.attempts)
            child = await self.sinks.opened(self.parent, name)
            partitions = [("orders", 0), ("orders", 1)]
            values = [f"{batch}.{task}.{index}" for _, index in partitions]
            codes = [
                await self.sinks.write(name, child, value, partition)
                for partition, value in zip(partitions, values, strict=True)
            ]
            if not any(codes):
                return winner(name, child, dict.fromkeys(partitions, 1))

    async def batch(self, batch: int) -> None:
        rows = [await self.task(batch, task) for task in range(TASKS)]
        await self.task(batch, 0)
        answer = await self.sinks.ended(self.parent, batch, rows, self.run_id)
        assert reason(answer) is None

    async def live(self) -> None:
        batch = await self.begin()
        while batch < BATCHES:
            await self.batch(batch)
            batch = await self.begin() if batch == 1 else batch + 1


async def appends_of(setup: Setup) -> int:
    await Query(setup).live()
    assert sorted(await Sinks(setup).stable()) == expected()
    return setup.log.appends


def expected() -> list[str]:
    return sorted(
        f"{batch}.{task}.{index}"
        for batch, task, index in itertools.product(range(BATCHES), range(TASKS), range(2))
    )


CONFIG = TransactionConfig(partitions=1)
APPENDS = run(appends_of, CONFIG)


def dying_at(setup: Setup, last: int, *, kept: bool) -> None:
    """Have the coordinator die at its append number `last`, and another one take over."""
    count = itertools.count(1)

    def fate() -> str:
        number = next(count)
        if number == last:
            setup.loop.call_soon(lambda: setup.loop.create_task(take_over(setup)))
            return "kept" if kept else "lost"
        return "ok"

    setup.log.fate = fate


async def take_over(setup: Setup) -> None:
    await setup.restart()


@pytest.mark.parametrize("kept", [True, False])
def test_each_batch_is_visible_once_whichever_append_is_the_last(kept: bool) -> None:
    for last in range(1, APPENDS + 1):

        async def scenario(setup: Setup, last: int = last) -> None:
            dying_at(setup, last, kept=kept)
            query = Query(setup)
            await query.live()
            visible = sorted(await query.sinks.stable())
            assert visible == expected(), f"append {last} of {APPENDS}"
            assert query.sinks.next_batch == BATCHES

        run(scenario, CONFIG)


@pytest.mark.parametrize("kept", [True, False])
def test_a_query_that_dies_with_its_coordinator_repeats_no_batch(kept: bool) -> None:
    """It does not repeat its commit: a new run reads the control record."""
    for last in range(1, APPENDS + 1):

        async def scenario(setup: Setup, last: int = last) -> None:
            dying_at(setup, last, kept=kept)
            query = Query(setup)
            life = asyncio.ensure_future(query.live())
            await until(lambda: setup.log.appends >= last or life.done(), every_s=0.001)
            life.cancel()
            await asyncio.sleep(1)
            successor = Query(setup)
            successor.runs = 100
            await successor.live()
            visible = sorted(await successor.sinks.stable())
            assert visible == expected(), f"append {last} of {APPENDS}"

        run(scenario, CONFIG)


def test_a_commit_that_is_repeated_after_its_run_is_fenced_is_refused() -> None:
    async def scenario(setup: Setup) -> None:
        query = Query(setup)
        await query.begin()
        rows = [await query.task(0, task) for task in range(TASKS)]
        old = query.parent
        assert reason(await query.sinks.ended(old, 0, rows, "run-1")) is None
        assert await query.begin() == 1, "the next run sees the commit"
        refused = await query.sinks.ended(old, 0, rows, "run-1")
        assert reason(refused) is Refusal.RUN_FENCED

    run(scenario, CONFIG)


def test_a_task_of_a_dead_query_cannot_write_after_the_next_run_began() -> None:
    async def scenario(setup: Setup) -> None:
        query = Query(setup)
        await query.begin()
        name = query.sinks.name(0, 0, 1)
        child = await query.sinks.opened(query.parent, name)
        assert await query.sinks.write(name, child, "early") is ErrorCode.NONE
        await query.begin()
        # Before its marker the log still takes the record, as part of the aborted transaction.
        await query.sinks.write(name, child, "late")
        late = await query.sinks.write(name, child, "late", ("orders", 3))
        assert late is not ErrorCode.NONE
        assert await query.sinks.stable() == []

    run(scenario, CONFIG)
