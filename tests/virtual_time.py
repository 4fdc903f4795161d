"""Tests in virtual time: hours pass at once, callbacks take no time, and threads do not exist."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from simulator.engine.loop import SimulatedLoop

T = TypeVar("T")


def run_in_virtual_time(work: Callable[[SimulatedLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a loop of its own, cancel the tasks that it leaves, return its result.

    Raises `Stuck` if the coroutine waits for an event that never comes.
    """
    loop = SimulatedLoop(None)

    async def whole() -> T:
        try:
            return await work(loop)
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    try:
        return loop.run_until_complete(whole())
    finally:
        loop.close()
