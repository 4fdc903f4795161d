from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lakelog.client.errors import UnreachableError
from lakelog.spark.python_processes import without_traceback
from lakelog.tables.topic.errors import OptionError, TopicGoneError, TopicMissingError

_SCRIPT = """
import gc, importlib.machinery, sys
from lakelog.spark.python_processes import exempt_modules
exempt_modules()
found = [gc.get_freeze_count()]
sys.modules["__main__"].__spec__ = importlib.machinery.ModuleSpec("pyspark.daemon", None)
exempt_modules()
found.append(gc.get_freeze_count())
kept = [[] for _ in range(100)]
exempt_modules()
found.append(gc.get_freeze_count())
import wave
exempt_modules()
found.append(gc.get_freeze_count())
print(*found)
"""


def test_workers_do_not_collect_loaded_modules_again_and_other_processes_are_left_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True
    )
    other, first, again, after_import = map(int, done.stdout.split())
    assert other == 0
    assert first > 1000
    assert again <= first, "nothing was imported"
    assert after_import > first


HIDE = "SPARK_HIDE_TRACEBACK"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE, "")


@pytest.mark.parametrize(
    "error",
    [
        OptionError("unknown option 'a'"),
        TopicMissingError("topic 'a' does not exist"),
        TopicGoneError("topic 'a' was deleted"),
        UnreachableError("a:1: connection refused"),
    ],
)
def test_an_expected_error_hides_the_traceback(error: Exception) -> None:
    with pytest.raises(type(error)), without_traceback():
        raise error
    assert os.environ[HIDE]


def test_a_fault_of_this_program_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), without_traceback():
        raise ZeroDivisionError
    assert not os.environ[HIDE]


def test_a_function_that_succeeds_changes_nothing() -> None:
    @without_traceback()
    def plan() -> int:
        return 1

    assert plan() == plan() == 1
    assert not os.environ[HIDE]
