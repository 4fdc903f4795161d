from __future__ import annotations

import os

import pytest

from lakelog.client.errors import UnreachableError
from lakelog.spark.expected_errors import without_traceback
from lakelog.tables.topic.errors import OptionError, TopicGoneError, TopicMissingError

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
