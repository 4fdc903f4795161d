from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.metrics.durations import Durations
from lakelog.protocol.registry import APIS
from lakelog.server.monitoring.loop_watch import PERIOD_S, LoopWatch
from lakelog.server.requests.metrics import RequestMetrics
from storage_kit import ManualClock


class WatchedLoop:
    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.requests = RequestMetrics(self.clock)
        self.timers: list[Callable[[], object]] = []
        tasks: Any = self
        self.fsyncs = Durations()
        self.watch = LoopWatch(self.clock, tasks, self.requests, self.fsyncs)
        self.watch.start()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Any:
        assert delay_s == PERIOD_S
        self.timers.append(callback)
        return SimpleNamespace(cancel=lambda: self.timers.remove(callback))

    def beat(self, late_ms: int = 0) -> None:
        self.clock.now_ms += int(PERIOD_S * 1000) + late_ms
        self.timers.pop()()


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
    assert not watched.timers
