"""Virtual time: jumps to timers, equal seeds, and the order of callbacks."""

from __future__ import annotations

import asyncio
import random

import pytest

from simulator.engine.loop import SimulatedLoop, Stuck


def run_twice(seed: int) -> list[tuple[float, str]]:
    loop = SimulatedLoop(random.Random(seed))
    seen: list[tuple[float, str]] = []

    async def wait(name: str, seconds: float) -> None:
        for _ in range(3):
            await asyncio.sleep(seconds)
            seen.append((loop.time(), name))

    async def main() -> None:
        await asyncio.gather(wait("a", 1.0), wait("b", 1.00005), wait("c", 1200.0))

    loop.run_until_complete(main())
    loop.close()
    return seen


def test_an_hour_takes_no_time_and_each_seed_is_itself() -> None:
    first = run_twice(1)
    assert first[-1][0] >= 3600
    assert first == run_twice(1)
    assert first != run_twice(2)


def test_without_random_numbers_callbacks_take_no_time() -> None:
    loop = SimulatedLoop(None)
    loop.run_until_complete(asyncio.sleep(5))
    loop.run_until_complete(asyncio.sleep(7))
    assert loop.time() == 12
    loop.close()


def test_ready_callbacks_run_in_the_order_of_call_soon() -> None:
    loop = SimulatedLoop(random.Random(1))
    seen: list[int] = []
    for number in range(5):
        loop.call_soon(seen.append, number)
    loop.run_until_complete(asyncio.sleep(0))
    assert seen == [0, 1, 2, 3, 4]
    loop.close()


def test_a_loop_that_nothing_can_wake_raises_stuck() -> None:
    loop = SimulatedLoop(random.Random(1))
    with pytest.raises(Stuck):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_timeouts_that_were_cancelled_are_swept() -> None:
    loop = SimulatedLoop(random.Random(1))

    async def main() -> int:
        for _ in range(1000):
            async with asyncio.timeout(3600):
                await asyncio.sleep(0)
        return len(loop._scheduled)

    assert loop.run_until_complete(main()) < 200
    loop.close()
