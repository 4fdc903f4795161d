"""Has stored batches checked that this process has not looked at, before anybody is given them.

A thread reads them, which also brings them into the page cache.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from lakelog.base.shortage import is_shortage
from lakelog.replica.partition import Partition
from lakelog.runtime.api import Tasks
from lakelog.storage.errors import CorruptLog
from lakelog.storage.preparation import Preparation

NeededCheck = tuple[Partition, Preparation]


class StoredChecks:
    """One for a broker."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def run(self, needed: list[NeededCheck], then: Callable[[], object]) -> None:
        """Calls `then` on the loop when all of them have been made."""
        left = len(needed)

        def on_done(partition: Partition, job: Preparation, work: Any) -> None:
            nonlocal left
            finish_check(partition, job, work.exception())
            left -= 1
            if not left:
                then()

        for partition, job in needed:
            work = self._tasks.offload("check", job.run)
            work.add_done_callback(partial(on_done, partition, job))


def finish_check(partition: Partition, job: Preparation, failure: BaseException | None) -> None:
    """What was found is told to those who read there."""
    with suppress(CorruptLog, OSError):  # an index cannot be made anew: who asks again is told
        job.finish()
    failure = failure or job.failure
    if failure is not None and not is_shortage(failure):  # after one, the loop tries by itself
        partition.take_offline(str(failure))
