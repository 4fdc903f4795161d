"""Whether this broker can write to its data folder, for the controller of its cluster.

A broker that cannot write is read-only: other replicas lead and are in sync instead, where there
are any (ADR 12). A full disk passes; a device that has failed a write or sync is not trusted again
before the next start, as it may have dropped pages of any file. An idle broker writes nothing that
could fail, so the watch writes a small file every few seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from lakelog.base.events import FailingTask
from lakelog.runtime.api import Clock, Tasks, Timer
from lakelog.server.upkeep.shortages import Shortages

logger = logging.getLogger(__name__)

_PERIOD_S = 1.0
_TRIAL_S = 5.0
_CALM_S = 10.0
"""How long a disk must have space before the broker counts as writable again.

A disk that is almost full has space for a moment whenever a file is removed; each return moves
leaderships and copies records.
"""


class FolderWatch:
    """Watches one data folder from `start` to `stop`.

    Args:
        has_failed: returns whether a write or sync has failed for another reason than a shortage.
        report: called with whether the folder is read-only, each time that this changes.
    """

    def __init__(
        self,
        shortages: Shortages,
        has_failed: Callable[[], bool],
        report: Callable[[bool], object],
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._shortages = shortages
        self._has_failed = has_failed
        self._report = report
        self._clock = clock
        self._tasks = tasks
        self._is_read_only = False
        self._writable_from = 0.0
        self._next_trial = 0.0
        self._timer: Timer | None = None
        self._task = FailingTask(logger, "the watch of the data folder")

    def start(self) -> None:
        """Look every second from now on."""
        try:
            self._look()
        except Exception as bug:  # noqa: BLE001 - an unwatched folder would keep its leaderships
            self._task.failed(bug)
        else:
            self._task.succeeded()
        self._timer = self._tasks.call_later(_PERIOD_S, self.start)

    def stop(self) -> None:
        """Report nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = self._clock.monotonic()
        if self._has_failed():
            self._shortages.note_failed_device()
        elif now >= self._next_trial:
            self._next_trial = now + _TRIAL_S
            self._shortages.try_device()
        if self._shortages.has_failed or self._shortages.is_full:
            self._writable_from = now + _CALM_S
        is_read_only = now < self._writable_from
        if is_read_only != self._is_read_only:
            self._report(is_read_only)
            self._is_read_only = is_read_only
