"""Virtual time, and processes that end without a word."""

from __future__ import annotations

import asyncio
import random

import pytest

from lakelog.testing.simulation.engine.loop import SimulatedLoop, Stuck
from lakelog.testing.simulation.engine.process import Process


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


def test_a_loop_that_nothing_can_wake_says_so() -> None:
    loop = SimulatedLoop(random.Random(1))
    with pytest.raises(Stuck):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_a_dead_process_does_not_run_and_does_not_clean_up() -> None:
    loop = SimulatedLoop(random.Random(1))
    seen: list[str] = []

    async def live() -> None:
        try:
            loop.call_later(5.0, seen.append, "a timer of it")
            await asyncio.sleep(2.0)
            seen.append("it continues")
        except asyncio.CancelledError:
            seen.append("it was cancelled")

    async def main() -> None:
        process = Process("host")
        loop.create_task(live(), context=process.context())
        await asyncio.sleep(1.0)
        process.kill()
        process.close_coroutines()
        await asyncio.sleep(10.0)

    loop.run_until_complete(main())
    loop.close()
    assert seen == []


def test_timeouts_that_were_cancelled_are_swept() -> None:
    loop = SimulatedLoop(random.Random(1))

    async def main() -> int:
        for _ in range(1000):
            async with asyncio.timeout(3600):
                await asyncio.sleep(0)
        return len(loop._scheduled)

    assert loop.run_until_complete(main()) < 200
    loop.close()
