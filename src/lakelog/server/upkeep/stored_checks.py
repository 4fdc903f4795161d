"""Runs the jobs of `NotReady` in threads; callers that need the same job share one run.

Threads check batches that this process has not read before, and load and rebuild indexes. That also
brings them into the page cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.partition import Partition
from lakelog.runtime.api import Tasks
from lakelog.storage.errors import CorruptLog
from lakelog.storage.preparation import Preparation

NeededCheck = tuple[Partition, Preparation]
Failures = dict[Partition, KafkaError]


class StoredChecks:
    """The jobs of one broker."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._waiting: dict[Hashable, list[Callable[[KafkaError | None], object]]] = {}
        """Callbacks of running jobs, by the key of the job."""

    def run(
        self, needed: Sequence[NeededCheck], then: Callable[[Failures], object] = lambda _: None
    ) -> None:
        """Run the jobs, and call `then` on the loop when all are done.

        It is passed the errors of jobs that failed because of the device or a bug, by partition.
        Such a partition is offline unless the failure is a shortage.
        """
        left, failures = len(needed), Failures()

        def on_done(partition: Partition, error: KafkaError | None) -> None:
            nonlocal left
            if error is not None:
                failures[partition] = error
            left -= 1
            if not left:
                then(failures)

        for partition, job in needed:
            self._begin(partition, job, partial(on_done, partition))

    async def run_and_wait(self, needed: Sequence[NeededCheck]) -> Failures:
        """Run one or more jobs and wait for all; return the failures, as `run` passes them."""
        done: asyncio.Future[Failures] = self._tasks.future()

        def wake(failures: Failures) -> None:
            if not done.done():
                done.set_result(failures)

        self.run(needed, wake)
        return await done

    async def run_one(self, partition: Partition, job: Preparation) -> None:
        """Run one job and wait for it.

        Raises `KafkaError` (KAFKA_STORAGE_ERROR, or the code of a shortage) if the device failed.
        """
        failures = await self.run_and_wait([(partition, job)])
        if partition in failures:
            raise failures[partition]

    def _begin(
        self, partition: Partition, job: Preparation, on_done: Callable[[KafkaError | None], object]
    ) -> None:
        waiting = self._waiting.get(job.key)
        if waiting is not None:
            # The running job was begun earlier on the same files, so its result serves both.
            job.abandon()
            waiting.append(on_done)
            return
        self._waiting[job.key] = [on_done]
        work = self._tasks.offload("check", job.run)
        work.add_done_callback(partial(self._on_made, partition, job))

    def _on_made(self, partition: Partition, job: Preparation, work: Any) -> None:
        error = _finish(partition, job, work.exception())
        for on_done in self._waiting.pop(job.key):
            on_done(error)


def _finish(
    partition: Partition, job: Preparation, failure: BaseException | None
) -> KafkaError | None:
    """Apply the result of a job, and return the error of the device, if any.

    Damage is not an error here: the reader of the damaged data gets it.
    """
    try:
        with suppress(CorruptLog, OSError):  # the next caller fails again
            job.finish()
    except Exception as bug:  # noqa: BLE001 - waiting requests must get an answer
        failure = failure or bug
    failure = failure or job.failure
    if failure is None:
        return None
    if isinstance(failure, OSError):
        return partition.storage_error(failure)
    partition.take_offline(str(failure))
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
