"""The data folder of a broker: its logs, the reserve of disk space, and its watch.

A broker that cannot write to its folder is read-only: other replicas lead and are in sync instead,
where there are any (ADR 12). A full disk passes; a device that has failed a write or sync is not
trusted again before the next start, as it may have dropped pages of any file. An idle broker writes
nothing that could fail, so the watch writes a small file every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import closing

from lakelog.base.events import FailingTask
from lakelog.runtime.api import Clock, Tasks, Timer
from lakelog.server.options import Environment, ServeOptions
from lakelog.server.upkeep.shortages import Shortages
from lakelog.storage.files import parse_dir_name
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.folder.space import SpaceReserve
from lakelog.storage.producers.limit import ProducerLimit

logger = logging.getLogger(__name__)


class DataFolder:
    """The folder of the option `--data`.

    Args:
        retain_soon: runs retention when space is short.
        over: called when a shortage is over.
    """

    def __init__(
        self,
        options: ServeOptions,
        environment: Environment,
        retain_soon: Callable[[], object],
        over: Callable[[], object],
    ) -> None:
        config, disk, tasks = options.config, environment.disk, environment.tasks
        self._options = options
        self._environment = environment
        producers = ProducerLimit(
            config.get_int("lakelog.producer.ids.max"), config.get_int("producer.id.expiration.ms")
        )
        self.directory = LogDirectory(
            options.data,
            disk,
            environment.clock,
            environment.random,
            max_open_files=environment.open_files_max,
            producers=producers,
        )
        self.reserve = SpaceReserve(
            disk,
            options.data,
            config.get_int("lakelog.disk.reserve.bytes"),
            self.directory.space_guard,
        )
        self.shortages = Shortages(
            options.data, disk, tasks, self.reserve, lambda: tasks.call_soon(retain_soon), over
        )

    def open(self, cluster_id: str | None) -> None:
        """Lock and read the folder, and take the reserve. Raises `StorageError` and `OSError`."""
        self.directory.open(cluster_id, self._options.node_id)
        self.reserve.open()

    def has_logs(self) -> bool:
        """Return whether the folder contains the log of any partition."""
        disk, data = self._environment.disk, self._options.data
        names = disk.list(data) if disk.exists(data) else ()
        return any(parse_dir_name(name) is not None for name in names)

    def space(self) -> tuple[int, int]:
        """Return the total and the usable bytes of the file system."""
        return self._environment.disk.space(self._options.data)

    async def close(self, high_watermarks: Mapping[tuple[str, int], int]) -> None:
        """Close the logs in threads that wait for the device together.

        So one commit of the file system's journal serves all. Nothing else runs beside them.
        """
        offload = self._environment.tasks.offload
        with closing(self.directory.closing(high_watermarks)) as steps:
            for works in steps:
                await asyncio.gather(*(offload("close", work) for work in works))


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
