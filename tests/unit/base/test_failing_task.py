"""The log lines of a task that fails and continues."""

from __future__ import annotations

import logging

import pytest

from lakelog.base.failing_task import FailingTask


def test_a_task_has_one_line_until_it_succeeds_again(caplog: pytest.LogCaptureFixture) -> None:
    task = FailingTask(logging.getLogger("lakelog.test"), "copying")
    for _ in range(3):
        task.failed(ValueError("planted"))
    assert [record.message for record in caplog.records] == [
        "copying failed, and is repeated: ValueError('planted')"
    ]
    assert "\nValueError: planted" in caplog.text
    task.succeeded()
    task.failed(ValueError("again"))
    assert len(caplog.records) == 2
