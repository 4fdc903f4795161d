"""Which brokers may have died before this process started."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerFenced, BrokerRecord
from lakelog.server.authentication import Process
from lakelog.server.inter_broker.reachable_brokers import PATIENCE_S, ReachableBrokers
from simulator.engine.loop import SimulatedLoop
from simulator.engine.tasks import SimulatedTasks

SECOND, THIRD = Process(2, b"2" * 16), Process(3, b"3" * 16)
IMAGE = MetadataImage().apply_all(
    [BrokerRecord(1, b"1" * 16, 1, (), None)]
    + [BrokerRecord(*process, 1, (), None) for process in (SECOND, THIRD)],
    1,
)

Run = Callable[[Callable[[ReachableBrokers], Coroutine[Any, Any, None]]], float]


@pytest.fixture
def run() -> Run:
    """Run a scenario, and return for how many seconds."""

    def run(scenario: Callable[[ReachableBrokers], Coroutine[Any, Any, None]]) -> float:
        rng = random.Random(7)
        with contextlib.closing(SimulatedLoop(rng)) as loop:
            loop.run_until_complete(scenario(ReachableBrokers(1, SimulatedTasks(loop, rng))))
            return loop.time()

    return run


def test_only_a_process_itself_is_a_contact(run: Run) -> None:
    async def scenario(reachable_brokers: ReachableBrokers) -> None:
        assert reachable_brokers.lacking(IMAGE) == {2, 3}
        reachable_brokers.note(SECOND)
        reachable_brokers.note_called(THIRD)
        assert reachable_brokers.lacking(IMAGE) == {3}
        again = IMAGE.apply(BrokerRecord(2, b"n" * 16, 2, (), None))
        assert reachable_brokers.lacking(again) == {2, 3}, "its former process was reached"
        assert reachable_brokers.lacking(IMAGE.apply(BrokerFenced(3, 1))) == frozenset(), (
            "it is known"
        )

    run(scenario)


def test_creations_wait_for_the_first_call_of_each_broker(run: Run) -> None:
    async def scenario(reachable_brokers: ReachableBrokers) -> None:
        waiting = [asyncio.ensure_future(reachable_brokers.wait(lambda: IMAGE)) for _ in range(2)]
        for process in (SECOND, THIRD):
            await asyncio.sleep(PATIENCE_S / 4)
            assert not any(each.done() for each in waiting)
            reachable_brokers.note_called(process)
        await asyncio.gather(*waiting)
        await reachable_brokers.wait(lambda: IMAGE)

    assert run(scenario) < PATIENCE_S


def test_they_do_not_wait_for_ever(run: Run) -> None:
    assert run(lambda reachable_brokers: reachable_brokers.wait(lambda: IMAGE)) == pytest.approx(
        PATIENCE_S, rel=0.01
    )
