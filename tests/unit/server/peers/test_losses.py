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
from lakelog.server.peers.losses import LISTED_S, PATIENCE_S, Losses
from simulator.engine.loop import SimulatedLoop
from simulator.engine.tasks import SimulatedTasks

SERVING = MetadataImage().apply_all(
    [ClusterRecord("cluster"), BrokerRecord(1, b"1" * 16, 1, (), None)], 1
)
FENCED = SERVING.apply(BrokerFenced(1, 1))
SERVING_AGAIN = FENCED.apply(BrokerUnfenced(1, 1))

Run = Callable[[Callable[[Losses], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run() -> Run:
    def run(scenario: Callable[[Losses], Coroutine[Any, Any, None]]) -> None:
        rng = random.Random(7)
        with contextlib.closing(SimulatedLoop(rng)) as loop:
            losses = Losses(SimulatedTasks(loop, rng))
            losses.follow(SERVING)
            loop.run_until_complete(scenario(losses))
            losses.close()

    return run


BOTH = SERVING.apply(BrokerRecord(2, b"2" * 16, 1, (), None))


async def waits_until(losses: Losses, event: Callable[[], None]) -> bool:
    """Return whether two calls of `settle` wait for the event, and return after it."""
    waiting = [asyncio.ensure_future(losses.settle()) for _ in range(2)]
    await asyncio.sleep(PATIENCE_S / 2)
    waited = not any(each.done() for each in waiting)
    event()
    await asyncio.sleep(PATIENCE_S / 10)
    return waited and all(each.done() for each in waiting)


def test_an_answer_waits_until_the_lost_broker_is_fenced(run: Run) -> None:
    async def scenario(losses: Losses) -> None:
        assert not losses
        losses.add(1)
        assert losses
        assert await waits_until(losses, lambda: losses.follow(FENCED))
        assert not losses

    run(scenario)


def test_an_answer_waits_until_the_broker_is_connected_again(run: Run) -> None:
    async def scenario(losses: Losses) -> None:
        losses.add(1)
        assert await waits_until(losses, lambda: losses.settled(1))

    run(scenario)


def test_an_answer_waits_for_all_lost_brokers_but_not_for_long(run: Run) -> None:
    async def scenario(losses: Losses) -> None:
        losses.follow(BOTH)
        losses.add(1)
        losses.add(2)
        losses.settled(1)
        assert losses
        begin = asyncio.get_running_loop().time()
        await losses.settle()
        assert asyncio.get_running_loop().time() - begin >= PATIENCE_S

    run(scenario)


def test_no_answer_waits_for_a_broker_that_is_fenced(run: Run) -> None:
    async def scenario(losses: Losses) -> None:
        losses.follow(FENCED)
        losses.add(1)
        assert not losses

    run(scenario)


def test_further_losses_do_not_make_an_answer_wait_longer(run: Run) -> None:
    async def scenario(losses: Losses) -> None:
        losses.follow(BOTH)
        losses.add(1)
        waiting = asyncio.ensure_future(losses.settle())
        await asyncio.sleep(PATIENCE_S / 2)
        losses.add(2)
        await asyncio.sleep(PATIENCE_S * 0.6)
        assert losses and waiting.done()

    run(scenario)


def test_a_cancelled_wait_does_not_end_another(run: Run) -> None:
    async def scenario(losses: Losses) -> None:
        losses.add(1)
        cancelled = asyncio.ensure_future(losses.settle())
        await asyncio.sleep(0.01)
        cancelled.cancel()
        assert await waits_until(losses, lambda: losses.settled(1))

    run(scenario)


def test_a_fenced_broker_is_listed_for_a_while(run: Run) -> None:
    async def scenario(losses: Losses) -> None:
        assert not losses.is_listed(1)
        losses.follow(FENCED)
        assert losses.is_listed(1)
        await asyncio.sleep(LISTED_S / 2)
        losses.follow(FENCED)
        assert losses.is_listed(1)
        await asyncio.sleep(LISTED_S)
        assert not losses.is_listed(1)
        losses.follow(SERVING_AGAIN)
        losses.follow(FENCED)
        assert losses.is_listed(1)
        losses.follow(SERVING_AGAIN)
        assert not losses.is_listed(1), "the image lists a broker that serves"

    run(scenario)


TOPIC: list[Record] = [
    TopicRecord("orders", b"t" * 16),
    PartitionRecord(b"t" * 16, 0, (1, 2), (1, 2), 2, 0, 0),
]


def test_a_first_image_lists_fenced_brokers_that_have_replicas() -> None:
    rng = random.Random(7)
    with contextlib.closing(SimulatedLoop(rng)) as loop:
        losses = Losses(SimulatedTasks(loop, rng))
        joining = BOTH.apply(BrokerRecord(3, b"3" * 16, 1, (), None))
        losses.follow(joining.apply_all([*TOPIC, BrokerFenced(1, 1), BrokerFenced(3, 1)], 1))
        assert [losses.is_listed(node_id) for node_id in (1, 2, 3)] == [True, False, False]
        losses.close()


def test_a_broker_that_is_unregistered_is_listed_no_longer(run: Run) -> None:
    async def scenario(losses: Losses) -> None:
        losses.follow(FENCED)
        losses.follow(FENCED.apply(BrokerUnregistered(1, 1)))
        assert not losses.is_listed(1)

    run(scenario)


def test_the_end_forgets_listed_brokers(run: Run) -> None:
    async def scenario(losses: Losses) -> None:
        losses.follow(FENCED)
        losses.close()
        assert not losses.is_listed(1)

    run(scenario)
