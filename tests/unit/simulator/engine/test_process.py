"""Simulated processes, which can be killed between any two callbacks."""

from __future__ import annotations

import asyncio
import random

from simulator.engine.loop import SimulatedLoop
from simulator.engine.process import Process


def test_a_dead_process_does_not_run_and_does_not_clean_up() -> None:
    loop = SimulatedLoop(random.Random(1))
    seen: list[str] = []

    async def live() -> None:
        try:
            loop.call_later(5.0, seen.append, "its timer")
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


def test_tasks_of_a_process_inherit_it() -> None:
    loop = SimulatedLoop(None)
    seen: list[str] = []

    async def child() -> None:
        await asyncio.sleep(2.0)
        seen.append("the child continues")

    async def parent() -> None:
        await asyncio.gather(asyncio.ensure_future(child()))

    async def main() -> None:
        process = Process("host")
        loop.create_task(parent(), context=process.context())
        await asyncio.sleep(1.0)
        process.kill()
        process.close_coroutines()
        await asyncio.sleep(10.0)

    loop.run_until_complete(main())
    loop.close()
    assert seen == []


def test_the_callbacks_of_a_paused_process_run_in_their_order_after_the_pause() -> None:
    loop = SimulatedLoop(None)
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, loop.time()))

    async def main() -> None:
        process = Process("host")
        loop.call_later(1.0, note, "early", context=process.context())
        loop.call_later(2.0, note, "late", context=process.context())
        process.pause(loop.time())
        assert process.is_paused
        await asyncio.sleep(5.0)
        assert seen == []
        loop.resume(process)
        await asyncio.sleep(1.0)

    loop.run_until_complete(main())
    loop.close()
    assert seen == [("early", 5.0), ("late", 5.0)]
