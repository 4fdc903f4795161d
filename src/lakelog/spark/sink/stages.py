"""How often the tasks of a batch ran, according to the driver.

A worker knows the number of its attempt within a stage. If Spark repeats a whole stage (after a
lost shuffle file), attempts count from 0 again, and tasks of both attempts may run at the same
time. Only the driver's status store knows that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from lakelog.spark.sink.content import Content
from lakelog.spark.sink.errors import RetriedTaskError

_STATUS_S = 30.0
_POLL_S = 0.005


class TaskResult(NamedTuple):
    """What one task of the writing stage returned."""

    stage: int
    partition: int
    rows: int
    digest: int

    @property
    def content(self) -> Content:
        """The rows that the task wrote."""
        return Content(self.rows, self.digest)


def check_single_attempts(
    results: Iterable[TaskResult],
    stage_info: Callable[[int], Any],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Content:
    """Return the content of the batch, if each partition of the stage was written by one task only.

    stage_info: `StatusTracker.getStageInfo`, whose answers lag behind the tasks. Raises
    `RetriedTaskError`.
    """
    tasks = list(results)
    places = [(task.stage, task.partition) for task in tasks]
    assert len(set(places)) == len(places), "Spark returned the result of a task twice"
    deadline = clock() + _STATUS_S
    for stage in {task.stage for task in tasks}:
        while not _is_complete(info := stage_info(stage)):
            if clock() >= deadline:
                raise RetriedTaskError(
                    f"Spark did not report stage {stage} as complete, and tasks may have run "
                    "twice: the batch is repeated"
                )
            sleep(_POLL_S)
        if info.currentAttemptId or info.numFailedTasks:
            raise RetriedTaskError(
                f"Spark repeated tasks of stage {stage} (attempt {info.currentAttemptId}, "
                f"{info.numFailedTasks} failed): the batch is repeated as a whole, because one "
                "transaction cannot distinguish the attempts"
            )
    return sum((task.content for task in tasks), Content())


def _is_complete(info: Any) -> bool:
    """Return whether the events up to the end of the stage have been processed."""
    return info is not None and not info.numActiveTasks and info.numCompletedTasks >= info.numTasks
