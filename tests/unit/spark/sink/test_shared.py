from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from lakelog.spark import write_to
from lakelog.spark.sink.control import Content
from lakelog.spark.sink.options import RetriedTaskError
from lakelog.spark.sink.shared import TaskResult, check_single_attempts
from lakelog.tables.topic.errors import OptionError

OPTIONS = {"kafka.bootstrap.servers": "localhost:1"}
SCHEMA = StructType([StructField("value", StringType())])


def frame(conf: dict[str, str], properties: dict[str, str]) -> Any:
    """A frame of a session with these settings and local properties."""
    context = SimpleNamespace(
        getConf=lambda: SimpleNamespace(get=conf.get), getLocalProperty=properties.get
    )
    return SimpleNamespace(schema=SCHEMA, sparkSession=SimpleNamespace(sparkContext=context))


def test_options_are_checked_before_the_query_starts() -> None:
    with pytest.raises(OptionError, match=r"unknown option 'sinkidd'.*did you mean 'sinkId'"):
        write_to("t", OPTIONS | {"sinkidd": "a"})
    with pytest.raises(OptionError, match=r"'kafka.bootstrap.servers' is required"):
        write_to("t", {})


def test_speculation_is_refused() -> None:
    with pytest.raises(OptionError, match=r"spark.speculation=false"):
        write_to("t", OPTIONS)(frame({"spark.speculation": "true"}, {}), 0)


def test_a_call_outside_of_a_query_is_refused() -> None:
    with pytest.raises(OptionError, match="within foreachBatch only"):
        write_to("t", OPTIONS)(frame({}, {}), 0)


def test_wrong_columns_are_refused_before_the_broker_is_asked() -> None:
    with pytest.raises(OptionError, match="set the option 'topic'"):
        write_to(None, OPTIONS)(frame({}, {}), 0)


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
