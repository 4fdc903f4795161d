from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from lakelog.coordinator.group.queries import GroupProgress
from lakelog.coordinator.group.records import OffsetCommitValue
from lakelog.metrics import Durations
from lakelog.protocol.registry import APIS
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.api import Timer
from lakelog.server.monitoring.sources import PERIOD_S, Lag, LagClock, LoopWatch
from lakelog.server.requests.metrics import RequestMetrics
from storage_kit import NOW, ManualClock, make_batch, memory_store, sole_leader


class GroupLag:
    """A group that has read up to `committed` of a log that ends at `end`."""

    def __init__(self) -> None:
        self.clock = LagClock()
        self.partition = Partition(
            memory_store().create("t"), sole_leader(0), lambda partition: None
        )
        self.partitions = PartitionRegistry()
        self.partitions.add(self.partition)

    def lag(self, now: float, *, end: int, committed: int) -> Lag:
        missing = end - self.partition.watermark.offset
        if missing:
            self.partition.append(make_batch(missing), NOW)
        offsets = {"t": {0: OffsetCommitValue(offset=committed), 7: OffsetCommitValue(offset=1)}}
        (lag,) = self.clock.lags([GroupProgress("g", 1, offsets)], self.partitions, now)
        return lag


def test_a_group_at_the_end_has_no_lag() -> None:
    assert GroupLag().lag(0.0, end=5, committed=5) == Lag("g", "t", 0, 5, 0, 0.0)


def test_an_offset_beyond_the_end_is_no_lag() -> None:
    assert GroupLag().lag(0.0, end=5, committed=9).records == 0


def test_seconds_are_interpolated_between_scrapes() -> None:
    group = GroupLag()
    group.lag(0.0, end=100, committed=100)
    group.lag(10.0, end=200, committed=100)
    assert group.lag(20.0, end=200, committed=150) == Lag("g", "t", 0, 150, 50, 15.0)


def test_seconds_grow_while_nothing_is_read_and_nothing_comes() -> None:
    group = GroupLag()
    group.lag(0.0, end=100, committed=100)
    group.lag(10.0, end=200, committed=100)
    assert group.lag(70.0, end=200, committed=100).seconds == 70.0


def test_before_anything_was_seen_seconds_are_unknown() -> None:
    assert GroupLag().lag(0.0, end=100, committed=50) == Lag("g", "t", 0, 50, 50, None)


def test_a_log_without_committed_offsets_is_forgotten() -> None:
    group = GroupLag()
    group.lag(0.0, end=100, committed=100)
    assert list(group.clock.lags([], group.partitions, 1.0)) == []
    assert group.lag(2.0, end=100, committed=50).seconds is None


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
