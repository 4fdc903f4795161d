"""A clean stop of many logs, nearly all of which is waiting for the device.

Therefore logs are closed in slices. First the missing parts of a slice's files are written. Then
several threads sync the files at once, which a journal turns into few commits. The folder of all
logs is synced once a slice. A log that cannot be closed does not prevent others from closing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from lakelog.base.events import event
from lakelog.runtime.api import Disk
from lakelog.storage.errors import CorruptLog
from lakelog.storage.flush import FlushJob
from lakelog.storage.log import Log

_logger = logging.getLogger(__name__)

_SLICE_LOGS_MAX = 512
_PARTS = 16

Works = Sequence[Callable[[], None]]
"""Calls for any threads, in any order; all must return before the next step is requested."""


def close_logs(
    disk: Disk, folder: Path, logs: Iterable[Log], files_max: int
) -> Generator[Works, None, bool]:
    """Yield the steps of a clean stop; return whether each log is durable to its end.

    At most `files_max` logs are in a slice, because each has a file open while it is synced. A
    failure of one log is logged, and the others are closed all the same.
    """
    every = True
    left = iter(logs)
    while part := list(islice(left, min(files_max, _SLICE_LOGS_MAX))):
        closing = _Slice(disk, folder, part)
        yield closing.writes()
        yield closing.syncs()
        yield [closing.sync_folder]
        every &= closing.finish()
    return every


class _Slice:
    def __init__(self, disk: Disk, folder: Path, logs: list[Log]) -> None:
        self._disk = disk
        self._folder = folder
        self._logs = [log for log in logs if log.flushes.may_be_closed]
        self._complete = len(self._logs) == len(logs)
        self._unwritten: list[Log] = []
        self._jobs: list[tuple[Log, FlushJob]] = []
        self._has_new_names = False

    def writes(self) -> Works:
        return [partial(self._write, self._logs[part::_PARTS]) for part in range(_PARTS)]

    def _write(self, logs: list[Log]) -> None:
        for log in logs:
            try:
                log.write_out()
            except (OSError, CorruptLog) as error:
                self._unwritten.append(log)
                self._fail(log, error)

    def syncs(self) -> Works:
        """Open the files on the loop, as all logs share the open files; threads sync them."""
        for log in self._logs:
            if log not in self._unwritten:
                self._open(log)
        return [partial(self._sync, self._jobs[part::_PARTS]) for part in range(_PARTS)]

    def _open(self, log: Log) -> None:
        try:
            job = log.begin_flush()
        except (OSError, CorruptLog) as error:
            self._fail(log, error)
            return
        if job is None:
            # Everything is durable already; only the files have to be closed.
            log.abandon()
            return
        if self._folder in job.names:
            # The data folder is synced once for the whole slice.
            job.names.remove(self._folder)
            self._has_new_names = True
        self._jobs.append((log, job))

    def _sync(self, jobs: list[tuple[Log, FlushJob]]) -> None:
        for log, job in jobs:
            try:
                job.run()
            except OSError as error:
                self._fail(log, error)

    def sync_folder(self) -> None:
        if not self._has_new_names:
            return
        try:
            self._disk.sync_dir(self._folder)
        except OSError as error:
            _logger.error(
                "%s cannot be made durable: %s",
                self._folder,
                error,
                extra=event("close_failed", path=self._folder),
            )
            for _, job in self._jobs:
                # Without the folder's sync the names of new logs are not durable.
                job.done = False

    def finish(self) -> bool:
        """Close the logs and return whether all of the slice is durable."""
        for log, job in self._jobs:
            if job.done:
                log.finish_flush(job)
                log.abandon()
            else:
                job.release()
                self._complete = False
        return self._complete

    def _fail(self, log: Log, error: Exception) -> None:
        self._complete = False
        _logger.error(
            "%s-%d cannot be closed: %s",
            log.topic,
            log.partition,
            error,
            extra=event("close_failed", topic=log.topic, partition=log.partition),
        )
