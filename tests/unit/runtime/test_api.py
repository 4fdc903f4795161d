"""The function that waits for a time."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.runtime.api import complete, pause
from memory_broker import InlineTasks
from simulator.engine.loop import SimulatedLoop


def test_a_pause_takes_its_time() -> None:
    loop = SimulatedLoop(None)
    start = loop.time()
    loop.run_until_complete(pause(InlineTasks(loop), 2.5))
    assert loop.time() - start == pytest.approx(2.5)
    loop.close()


def test_a_cancelled_pause_leaves_no_timer() -> None:
    loop = SimulatedLoop(None)
    start = loop.time()

    async def cancel() -> None:
        waiting = asyncio.ensure_future(pause(InlineTasks(loop), 3600))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert [each for each in loop._scheduled if not each.cancelled()] == []

    loop.run_until_complete(cancel())
    assert loop.time() - start < 1
    loop.close()


def test_a_pause_may_end_early() -> None:
    loop = SimulatedLoop(None)
    start = loop.time()

    async def end_early() -> None:
        over = loop.create_future()
        loop.call_later(1.0, complete, over)
        await pause(InlineTasks(loop), 3600, over)
        complete(over)
        assert [each for each in loop._scheduled if not each.cancelled()] == []

    loop.run_until_complete(end_early())
    assert loop.time() - start == pytest.approx(1.0)
    loop.close()
