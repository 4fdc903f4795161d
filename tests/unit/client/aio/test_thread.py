from __future__ import annotations

import asyncio
import threading

import pytest

from lakelog.client.aio.thread import CallThread


def test_calls_run_one_after_the_other_also_after_a_cancellation() -> None:
    started, may_end = threading.Event(), threading.Event()
    order: list[str] = []

    def slow() -> None:
        started.set()
        may_end.wait(60)
        order.append("slow")

    async def main() -> None:
        thread = CallThread("test")
        task = asyncio.create_task(thread.run(slow))
        await asyncio.to_thread(started.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        following = thread.submit(lambda: order.append(threading.current_thread().name))
        may_end.set()
        await following
        thread.close()

    asyncio.run(main())
    assert order == ["slow", "test_0"]


def test_errors_of_a_call_are_raised() -> None:
    async def main() -> None:
        thread = CallThread("test")
        with pytest.raises(ZeroDivisionError):
            await thread.run(lambda: 1 // 0)
        thread.close()

    asyncio.run(main())


def test_the_last_call_is_made_once_and_ends_the_thread_also_if_it_fails() -> None:
    calls: list[str] = []

    def last() -> None:
        calls.append("last")
        raise ValueError("closing")

    async def main() -> None:
        thread = CallThread("test")
        with pytest.raises(ValueError, match="closing"):
            await thread.finish(last)
        await thread.finish(last)
        with pytest.raises(RuntimeError):
            thread.submit(last)

    asyncio.run(main())
    assert calls == ["last"]
