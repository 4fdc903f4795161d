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


class World:
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
    world = World()
    for late_ms in (0, 750, 20):
        world.beat(late_ms)
    assert world.watch.lag.count == 3
    assert world.watch.lag.sum_s == pytest.approx(0.77)
    assert world.watch.longest_callback_s == 0.75


def test_a_request_may_be_the_longest_and_is_forgotten_after_two_minutes() -> None:
    world = World()
    world.requests.durations(APIS[3]).note(0.2)
    world.beat()
    assert world.watch.longest_callback_s == 0.2
    for _ in range(240):
        world.beat()
    assert world.watch.longest_callback_s == 0.2
    for _ in range(240):
        world.beat()
    assert world.watch.longest_callback_s == 0


def test_a_short_chore_may_be_the_longest() -> None:
    world = World()
    world.watch.note_callback(0.12)
    world.watch.note_callback(0.03)
    assert world.watch.longest_callback_s == 0.12
    for _ in range(480):
        world.beat()
    assert world.watch.longest_callback_s == 0


def test_what_threads_have_noted_is_folded() -> None:
    world = World()
    world.fsyncs.note(0.01)
    world.beat()
    assert world.fsyncs.count == 1


def test_a_long_block_of_the_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.beat(1000)
    assert not caplog.records
    world.beat(2500)
    assert caplog.records[0].getMessage() == "the event loop was held up for 2.5 s"


def test_after_its_end_nothing_is_left() -> None:
    world = World()
    world.watch.stop()
    assert not world.timers
