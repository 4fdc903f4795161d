from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from lakelog.metrics import Durations
from lakelog.protocol.registry import APIS
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.api import Timer
from lakelog.server.monitoring.loop_watch import PERIOD_S, LoopWatch
from lakelog.server.requests.metrics import RequestMetrics
from storage_kit import ManualClock


@dataclass(eq=False)
class FakeTimer:
    """A timer in the list of the timers that are due."""

    due: list[FakeTimer]
    callback: Callable[[], object]

    def cancel(self) -> None:
        self.due.remove(self)


class TimersOnly(AsyncioTasks):
    """Tasks whose timers the test runs."""

    def __init__(self) -> None:
        self.due: list[FakeTimer] = []

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        assert delay_s == PERIOD_S
        timer = FakeTimer(self.due, partial(callback, *args))
        self.due.append(timer)
        return timer


class WatchedLoop:
    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.requests = RequestMetrics(self.clock)
        self.tasks = TimersOnly()
        self.fsyncs = Durations()
        self.watch = LoopWatch(self.clock, self.tasks, self.requests, self.fsyncs)
        self.watch.start()

    def beat(self, late_ms: int = 0) -> None:
        self.clock.now_ms += int(PERIOD_S * 1000) + late_ms
        self.tasks.due.pop().callback()


def test_a_late_beat_is_lag_and_the_longest_callback() -> None:
    watched = WatchedLoop()
    for late_ms in (0, 750, 20):
        watched.beat(late_ms)
    assert watched.watch.lag.count == 3
    assert watched.watch.lag.sum_s == pytest.approx(0.77)
    assert watched.watch.longest_callback_s == 0.75


def test_a_request_may_be_the_longest_and_is_forgotten_after_two_minutes() -> None:
    watched = WatchedLoop()
    watched.requests.durations(APIS[3]).note(0.2)
    watched.beat()
    assert watched.watch.longest_callback_s == 0.2
    for _ in range(240):
        watched.beat()
    assert watched.watch.longest_callback_s == 0.2
    for _ in range(240):
        watched.beat()
    assert watched.watch.longest_callback_s == 0


def test_a_short_chore_may_be_the_longest() -> None:
    watched = WatchedLoop()
    watched.watch.note_callback(0.12)
    watched.watch.note_callback(0.03)
    assert watched.watch.longest_callback_s == 0.12
    for _ in range(480):
        watched.beat()
    assert watched.watch.longest_callback_s == 0


def test_what_threads_have_noted_is_folded() -> None:
    watched = WatchedLoop()
    watched.fsyncs.note(0.01)
    watched.beat()
    assert watched.fsyncs.count == 1


def test_a_long_block_of_the_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    watched = WatchedLoop()
    watched.beat(1000)
    assert not caplog.records
    watched.beat(2500)
    assert caplog.records[0].getMessage() == "the event loop was held up for 2.5 s"


def test_after_its_end_nothing_is_left() -> None:
    watched = WatchedLoop()
    watched.watch.stop()
    assert not watched.tasks.due
