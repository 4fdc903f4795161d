"""Which brokers may have died before this process started."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerRecord,
    BrokerUnfenced,
    BrokerUnregistered,
    ClusterRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from lakelog.server.authentication import Process
from lakelog.server.inter_broker.reachable_brokers import (
    FAILURE_PATIENCE_S,
    LISTED_S,
    PATIENCE_S,
    FailedBrokers,
    ReachableBrokers,
)
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


SERVING = MetadataImage().apply_all(
    [ClusterRecord("cluster"), BrokerRecord(1, b"1" * 16, 1, (), None)], 1
)
FENCED = SERVING.apply(BrokerFenced(1, 1))
SERVING_AGAIN = FENCED.apply(BrokerUnfenced(1, 1))

FailureRun = Callable[[Callable[[FailedBrokers], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def failure_run() -> FailureRun:
    def run(scenario: Callable[[FailedBrokers], Coroutine[Any, Any, None]]) -> None:
        rng = random.Random(7)
        with contextlib.closing(SimulatedLoop(rng)) as loop:
            failed_brokers = FailedBrokers(SimulatedTasks(loop, rng))
            failed_brokers.follow(SERVING)
            loop.run_until_complete(scenario(failed_brokers))
            failed_brokers.close()

    return run


BOTH = SERVING.apply(BrokerRecord(2, b"2" * 16, 1, (), None))


async def waits_until(failed_brokers: FailedBrokers, event: Callable[[], None]) -> bool:
    """Return whether two calls of `settle` wait for the event, and return after it."""
    waiting = [asyncio.ensure_future(failed_brokers.wait()) for _ in range(2)]
    await asyncio.sleep(FAILURE_PATIENCE_S / 2)
    waited = not any(each.done() for each in waiting)
    event()
    await asyncio.sleep(FAILURE_PATIENCE_S / 10)
    return waited and all(each.done() for each in waiting)


def test_an_answer_waits_until_the_lost_broker_is_fenced(failure_run: FailureRun) -> None:
    async def scenario(failed_brokers: FailedBrokers) -> None:
        assert not failed_brokers
        failed_brokers.add(1)
        assert failed_brokers
        assert await waits_until(failed_brokers, lambda: failed_brokers.follow(FENCED))
        assert not failed_brokers

    failure_run(scenario)


def test_an_answer_waits_until_the_broker_is_connected_again(failure_run: FailureRun) -> None:
    async def scenario(failed_brokers: FailedBrokers) -> None:
        failed_brokers.add(1)
        assert await waits_until(failed_brokers, lambda: failed_brokers.resolved(1))

    failure_run(scenario)


def test_an_answer_waits_for_all_lost_brokers_but_not_for_long(failure_run: FailureRun) -> None:
    async def scenario(failed_brokers: FailedBrokers) -> None:
        failed_brokers.follow(BOTH)
        failed_brokers.add(1)
        failed_brokers.add(2)
        failed_brokers.resolved(1)
        assert failed_brokers
        begin = asyncio.get_running_loop().time()
        await failed_brokers.wait()
        assert asyncio.get_running_loop().time() - begin >= FAILURE_PATIENCE_S

    failure_run(scenario)


def test_no_answer_waits_for_a_broker_that_is_fenced(failure_run: FailureRun) -> None:
    async def scenario(failed_brokers: FailedBrokers) -> None:
        failed_brokers.follow(FENCED)
        failed_brokers.add(1)
        assert not failed_brokers

    failure_run(scenario)


def test_further_losses_do_not_make_an_answer_wait_longer(failure_run: FailureRun) -> None:
    async def scenario(failed_brokers: FailedBrokers) -> None:
        failed_brokers.follow(BOTH)
        failed_brokers.add(1)
        waiting = asyncio.ensure_future(failed_brokers.wait())
        await asyncio.sleep(FAILURE_PATIENCE_S / 2)
        failed_brokers.add(2)
        await asyncio.sleep(FAILURE_PATIENCE_S * 0.6)
        assert failed_brokers and waiting.done()

    failure_run(scenario)


def test_a_cancelled_wait_does_not_end_another(failure_run: FailureRun) -> None:
    async def scenario(failed_brokers: FailedBrokers) -> None:
        failed_brokers.add(1)
        cancelled = asyncio.ensure_future(failed_brokers.wait())
        await asyncio.sleep(0.01)
        cancelled.cancel()
        assert await waits_until(failed_brokers, lambda: failed_brokers.resolved(1))

    failure_run(scenario)


def test_a_fenced_broker_is_listed_for_a_while(failure_run: FailureRun) -> None:
    async def scenario(failed_brokers: FailedBrokers) -> None:
        assert not failed_brokers.is_listed(1)
        failed_brokers.follow(FENCED)
        assert failed_brokers.is_listed(1)
        await asyncio.sleep(LISTED_S / 2)
        failed_brokers.follow(FENCED)
        assert failed_brokers.is_listed(1)
        await asyncio.sleep(LISTED_S)
        assert not failed_brokers.is_listed(1)
        failed_brokers.follow(SERVING_AGAIN)
        failed_brokers.follow(FENCED)
        assert failed_brokers.is_listed(1)
        failed_brokers.follow(SERVING_AGAIN)
        assert not failed_brokers.is_listed(1), "the image lists a broker that serves"

    failure_run(scenario)


TOPIC: list[Record] = [
    TopicRecord("orders", b"t" * 16),
    PartitionRecord(b"t" * 16, 0, (1, 2), (1, 2), 2, 0, 0),
]


def test_a_first_image_lists_fenced_brokers_that_have_replicas() -> None:
    rng = random.Random(7)
    with contextlib.closing(SimulatedLoop(rng)) as loop:
        failed_brokers = FailedBrokers(SimulatedTasks(loop, rng))
        joining = BOTH.apply(BrokerRecord(3, b"3" * 16, 1, (), None))
        failed_brokers.follow(
            joining.apply_all([*TOPIC, BrokerFenced(1, 1), BrokerFenced(3, 1)], 1)
        )
        assert [failed_brokers.is_listed(node_id) for node_id in (1, 2, 3)] == [True, False, False]
        failed_brokers.close()


def test_a_broker_that_is_unregistered_is_listed_no_longer(failure_run: FailureRun) -> None:
    async def scenario(failed_brokers: FailedBrokers) -> None:
        failed_brokers.follow(FENCED)
        failed_brokers.follow(FENCED.apply(BrokerUnregistered(1, 1)))
        assert not failed_brokers.is_listed(1)

    failure_run(scenario)


def test_the_end_forgets_listed_brokers(failure_run: FailureRun) -> None:
    async def scenario(failed_brokers: FailedBrokers) -> None:
        failed_brokers.follow(FENCED)
        failed_brokers.close()
        assert not failed_brokers.is_listed(1)

    failure_run(scenario)
