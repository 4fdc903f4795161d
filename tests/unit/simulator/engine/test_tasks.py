"""Offloaded work of simulated processes: it runs in the loop, at a random time within limits."""

from __future__ import annotations

import asyncio
import random

import pytest

from doubles.disk import DiskStopped
from simulator.engine.loop import SimulatedLoop
from simulator.engine.tasks import SimulatedTasks
from virtual_time import run_in_virtual_time


def tasks(loop: asyncio.AbstractEventLoop) -> SimulatedTasks:
    made = SimulatedTasks(loop, random.Random(1))
    made.delay_s_max = 5.0
    return made


def test_a_result_arrives_within_twice_the_longest_delay() -> None:
    async def work(loop: SimulatedLoop) -> None:
        done_at: list[float] = []
        made = tasks(loop)
        waiting = [made.offload("lane", lambda: done_at.append(loop.time())) for _ in range(50)]
        assert done_at == [], "nothing runs before its time"
        await asyncio.gather(*waiting)
        assert 0 < min(done_at) < max(done_at) < 5
        assert 5 < loop.time() < 10

    run_in_virtual_time(work)


def test_an_error_is_raised_where_the_result_is_awaited() -> None:
    async def work(loop: SimulatedLoop) -> None:
        with pytest.raises(OSError, match="full"):
            await tasks(loop).offload("lane", lambda: fail(OSError("full")))

    run_in_virtual_time(work)


def test_a_process_that_dies_in_its_work_never_has_a_result() -> None:
    async def work(loop: SimulatedLoop) -> None:
        loop.set_exception_handler(lambda loop, context: None)
        dead = tasks(loop).offload("lane", lambda: fail(DiskStopped("write")))
        await asyncio.sleep(20)
        assert not dead.done()

    run_in_virtual_time(work)


def test_cancelled_work_does_not_run() -> None:
    async def work(loop: SimulatedLoop) -> None:
        ran: list[int] = []
        tasks(loop).offload("lane", lambda: ran.append(1)).cancel()
        await asyncio.sleep(20)
        assert ran == []

    run_in_virtual_time(work)


def fail(error: Exception) -> None:
    raise error
