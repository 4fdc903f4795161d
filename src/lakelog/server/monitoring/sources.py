"""The parts of a broker that metrics are read from, and two measurements of its own.

The two are the delay of the loop, and the lag of groups, in records and in seconds.

A late beat of the loop gives a lower bound of the time for which it was blocked. A block that is
shorter than the time between two beats may be missed, unless it is a request or a periodic task:
these are timed one by one.

Seconds of lag are derived from earlier log end offsets: each scrape notes them for partitions with
a committed offset, which lies between two of them (as kafka-lag-exporter does it). Nothing is read
from the log, whose old records may not be in memory.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lakelog.base.events import event
from lakelog.coordinator.group.queries import GroupProgress
from lakelog.metrics import Durations
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.runtime.api import Clock, Processes, Tasks, Timer
from lakelog.server.broker import Broker
from lakelog.server.inter_broker.watch import PeerWatch
from lakelog.server.log_limits import LogWindow, left_out_text
from lakelog.server.replication.replica_manager import RoleChanges
from lakelog.server.requests.dispatch import Dispatcher
from lakelog.server.requests.metrics import RequestMetrics
from lakelog.server.upkeep.cleaner import Cleaner

logger = logging.getLogger(__name__)

PERIOD_S = 0.25
"""Seconds between two beats of the loop."""
_BEATS_OF_A_WINDOW = 240
_TOLD_ABOVE_S = 1.0
_POINTS_MAX = 60
_POINTS_APART_S = 5.0


class Lag(NamedTuple):
    """The lag of a group in one partition, in records and in seconds.

    `seconds` is None while the committed offset is older than all noted log ends.
    """

    group: str
    topic: str
    partition: int
    committed: int
    records: int
    seconds: float | None


class _Point(NamedTuple):
    """The scrapes from `first` to `last` saw a log end at `end`."""

    end: int
    first: float
    last: float


class LagClock:
    """The log end offsets of earlier scrapes. `now` is monotonic, in seconds."""

    def __init__(self) -> None:
        self._points: dict[tuple[bytes, int], deque[_Point]] = {}

    def lags(
        self, groups: Iterable[GroupProgress], partitions: PartitionRegistry, now: float
    ) -> Iterable[Lag]:
        """Yield the lag of every partition with a committed offset.

        `now` is in seconds on the monotonic clock.
        """
        ends: dict[tuple[bytes, int], int] = {}
        for group in groups:
            for topic, offsets in group.offsets.items():
                for index, committed in offsets.items():
                    partition = partitions.get(topic, index)
                    if partition is None:
                        continue
                    end = ends[partition.key] = partition.watermark.offset
                    records = max(0, end - committed.offset)
                    self._note(partition.key, end, now)
                    seconds = self._seconds(partition.key, committed.offset, records, now)
                    yield Lag(group.group_id, topic, index, committed.offset, records, seconds)
        self._points = {key: points for key, points in self._points.items() if key in ends}

    def _note(self, key: tuple[bytes, int], end: int, now: float) -> None:
        points = self._points.setdefault(key, deque(maxlen=_POINTS_MAX))
        # An end that stays is one point, so an idle partition keeps its history.
        if points and end == points[-1].end:
            points[-1] = points[-1]._replace(last=now)
        elif not points or now - points[-1].last >= _POINTS_APART_S:
            points.append(_Point(end, now, now))

    def _seconds(
        self, key: tuple[bytes, int], offset: int, records: int, now: float
    ) -> float | None:
        if not records:
            return 0.0
        points = self._points[key]
        after = bisect_right(points, offset, key=lambda point: point.end)
        if not after:
            return None
        before = points[after - 1]
        if after == len(points):
            return max(0.0, now - before.last)
        share = (offset - before.end) / (points[after].end - before.end)
        return max(0.0, now - before.last - share * (points[after].first - before.last))


class LoopWatch:
    """The delay of the loop, and the longest time for which one callback blocked it.

    From `start` to `stop`. It also folds the durations of requests.
    """

    def __init__(
        self, clock: Clock, tasks: Tasks, requests: RequestMetrics, fsyncs: Durations
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._requests = requests
        self._fsyncs = fsyncs
        self._window = LogWindow(clock)
        self._timer: Timer | None = None
        self._due = 0.0
        self._beats = 0
        self._longest_s = self._longest_before_s = 0.0
        self.lag = Durations()

    @property
    def longest_callback_s(self) -> float:
        """The longest block of the last one to two minutes, in seconds."""
        return max(self._longest_s, self._longest_before_s)

    def note_callback(self, duration_s: float) -> None:
        """Note that a callback other than a request has blocked the loop for so many seconds."""
        self._longest_s = max(self._longest_s, duration_s)

    def start(self) -> None:
        """Set the timer of the next beat, `PERIOD_S` seconds from now."""
        self._due = self._clock.monotonic() + PERIOD_S
        self._timer = self._tasks.call_later(PERIOD_S, self._beat)

    def stop(self) -> None:
        """Cancel the next beat."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        late_s = max(0.0, self._clock.monotonic() - self._due)
        self.lag.note(late_s)
        self.lag.fold()
        self._fsyncs.fold()
        self._beats += 1
        # Two windows: a maximum that was noted just before the change still shows for a minute.
        if self._beats % _BEATS_OF_A_WINDOW == 0:
            self._longest_before_s, self._longest_s = self._longest_s, 0.0
        self._longest_s = max(self._longest_s, late_s, self._requests.fold())
        if late_s > _TOLD_ABOVE_S:
            self._log_stall(late_s)
        self.start()

    def _log_stall(self, late_s: float) -> None:
        left_out = self._window.admit()
        if left_out is not None:
            logger.warning(
                "the event loop was held up for %.1f s%s",
                late_s,
                left_out_text(left_out),
                extra=event("loop_held_up", duration_s=late_s),
            )


@dataclass(slots=True)
class Sources:
    """The parts of one broker; `cleaner` is None until the broker accepts connections."""

    broker: Broker
    dispatcher: Dispatcher
    loop: LoopWatch
    fsyncs: Durations
    processes: Processes
    peers: PeerWatch
    role_changes: RoleChanges
    cleaner: Cleaner | None = None
    lag_clock: LagClock = field(default_factory=LagClock)
