from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.spark.sink.content import Content
from lakelog.spark.sink.errors import RetriedTaskError
from lakelog.spark.sink.stages import TaskResult, check_single_attempts

RESULTS = [TaskResult(4, 0, 10, 7), TaskResult(4, 1, 5, 2)]


def info(completed: int = 2, *, attempt: int = 0, failed: int = 0, active: int = 0) -> Any:
    return SimpleNamespace(
        currentAttemptId=attempt,
        numTasks=2,
        numActiveTasks=active,
        numCompletedTasks=completed,
        numFailedTasks=failed,
    )


def check(*answers: Any, step_s: float = 0.0) -> Content:
    """Check with the answers of the status store, the last of which repeats."""
    script, now = list(answers), [0.0]

    def stage_info(stage: int) -> Any:
        assert stage == 4
        return script.pop(0) if len(script) > 1 else script[0]

    def clock() -> float:
        now[0] += step_s
        return now[0]

    sleep: Callable[[float], None] = lambda seconds: None  # noqa: E731
    return check_single_attempts(RESULTS, stage_info, clock=clock, sleep=sleep)


def test_the_rows_of_all_tasks_are_counted() -> None:
    assert check(info()) == Content(15, 9)
    assert check_single_attempts([], lambda stage: None) == Content(0, 0)


def test_the_status_store_is_awaited() -> None:
    assert check(None, info(0, active=2), info(1, active=1), info()) == Content(15, 9)


@pytest.mark.parametrize("state", [info(attempt=1), info(failed=1)])
def test_a_batch_with_a_repeated_task_or_stage_is_rejected(state: Any) -> None:
    with pytest.raises(RetriedTaskError, match="the batch is repeated as a whole"):
        check(state)


def test_a_batch_of_unknown_attempts_is_rejected() -> None:
    with pytest.raises(RetriedTaskError, match="did not report stage 4 as complete"):
        check(info(1), step_s=20.0)
