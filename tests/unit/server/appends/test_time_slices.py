"""What long computations leave of the event loop: slices are counted in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import read_header
from lakelog.server.appends.slow_batches import SlowBatches
from lakelog.server.appends.time_slices import TimeSlices
from lakelog.storage.reading.timestamps import TimestampOffset
from simulator.engine.loop import SimulatedLoop
from storage_kit import NOW, ManualClock, make_batch

SLICE_MS = 3
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


class BusyClock(ManualClock):
    """Every other look at it is at the end of a slice, which took some milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        self.now_ms += SLICE_MS * (self.looks % 2 == 0)
        return super().monotonic()

    @property
    def busy_s(self) -> float:
        return self.looks // 2 * SLICE_MS / 1000


class IdleThreads:
    def offload(self, lane: str, work: Callable[[], Any]) -> asyncio.Future[Any]:
        done = asyncio.get_running_loop().create_future()
        done.set_result(work())
        return done


class StuckThreads(IdleThreads):
    """Threads that do not finish work of large batches."""

    def __init__(self) -> None:
        self.is_stuck = True
        self.stuck = 0

    def offload(self, lane: str, work: Callable[[], Any]) -> asyncio.Future[Any]:
        if not self.is_stuck:
            return super().offload(lane, work)
        self.stuck += 1
        return asyncio.get_running_loop().create_future()


@pytest.fixture
def clock() -> BusyClock:
    return BusyClock()


def _elapsed_s(main: Coroutine[Any, Any, object]) -> float:
    loop = SimulatedLoop(random.Random(1))
    began = loop.time()
    try:
        loop.run_until_complete(main)
        return loop.time() - began
    finally:
        loop.close()


def _slow_batches(clock: BusyClock, threads: IdleThreads | None = None) -> SlowBatches:
    tasks: Any = threads or IdleThreads()
    return SlowBatches(tasks, clock)


def test_walks_leave_half_of_the_loop_however_many_there_are(clock: BusyClock) -> None:
    slow = _slow_batches(clock)

    async def walk() -> None:
        batches = [slow.walked(make_batch(9_000), COMPACTED, NOW, sampled=False) for _ in range(4)]
        for walked in await asyncio.gather(*batches):
            assert read_header(walked).records_count == 9_000

    idle_s = _elapsed_s(walk())
    assert clock.looks // 2 >= 4 * 9, "a slice is of a thousand records"
    assert idle_s >= clock.busy_s


def test_a_small_batch_does_not_wait_for_large_ones(clock: BusyClock) -> None:
    """Two large batches take at most 128 MiB; with one limit for all, they delay every producer."""
    threads = StuckThreads()
    slow = _slow_batches(clock, threads)
    config = LogConfig(cleanup_policy=frozenset({"compact"}), max_message_bytes=8 << 20)

    async def walk() -> None:
        batch = make_batch(size=2 << 20)
        large = [
            asyncio.create_task(slow.walked(batch, config, NOW, sampled=False)) for _ in range(3)
        ]
        await asyncio.sleep(0)
        assert threads.stuck == 2
        threads.is_stuck = False
        walked = await slow.walked(make_batch(9), config, NOW, sampled=False)
        assert read_header(walked).records_count == 9
        assert not any(task.done() for task in large)
        for task in large:
            task.cancel()
        await asyncio.gather(*large, return_exceptions=True)

    _elapsed_s(walk())


def test_searches_leave_half_of_the_loop(clock: BusyClock) -> None:
    slow = _slow_batches(clock)
    answer = TimestampOffset(NOW, 1, 2)

    async def look() -> None:
        def search() -> Any:
            for _ in range(20):
                yield None
            assert (yield lambda: b"records") == b"records"
            return answer

        assert await slow.found(search()) == answer

    idle_s = _elapsed_s(look())
    assert clock.looks // 2 == 21
    assert idle_s >= clock.busy_s


def test_a_slice_that_fails_is_paid_for_and_lets_others_go_on(clock: BusyClock) -> None:
    share = TimeSlices(clock)

    async def run() -> None:
        def fail() -> None:
            raise ValueError("planted")

        with pytest.raises(ValueError, match="planted"):
            await share.run(fail)
        assert await share.run(lambda: 7) == 7

    assert _elapsed_s(run()) >= clock.busy_s == 2 * SLICE_MS / 1000


def test_short_slices_are_slept_for_together() -> None:
    """A sleep after each slice would take a millisecond, on an otherwise idle loop."""
    clock = ManualClock(0)
    pauses = []

    def work() -> None:
        clock.now_ms += 0.25  # type: ignore[assignment]

    async def run() -> None:
        share = TimeSlices(clock)
        loop = asyncio.get_running_loop()
        for _ in range(8):
            began = loop.time()
            await share.run(work)
            pauses.append(loop.time() - began >= 0.001)

    _elapsed_s(run())
    assert pauses == [False, False, False, True] * 2
