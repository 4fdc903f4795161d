"""The delay of the loop, and the longest time for which one callback blocked it.

A late beat gives a lower bound of the time for which the loop was blocked. A block that is shorter
than the time between two beats may be missed, unless it is a request or a periodic task: these are
timed one by one.
"""

from __future__ import annotations

import logging

from lakelog.base.events import event
from lakelog.metrics import Durations
from lakelog.runtime.api import Clock, Tasks, Timer
from lakelog.server.event_log.rate_limited import LogWindow, left_out_text
from lakelog.server.requests.metrics import RequestMetrics

logger = logging.getLogger(__name__)

PERIOD_S = 0.25
_BEATS_OF_A_WINDOW = 240
_TOLD_ABOVE_S = 1.0


class LoopWatch:
    """From `start` to `stop`. It also folds the durations of requests."""

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
