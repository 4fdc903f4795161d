"""The names of log lines: each line has one, it looks like one, and the documentation has it."""

from __future__ import annotations

import ast
import asyncio
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lakelog.base.events import FailingTask, event
from lakelog.cli.catalog import CATALOG

ROOT = Path(__file__).parents[3]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
NAME = re.compile(r"[a-z]+(_[a-z]+){0,3}")
_LINE = re.compile(rf"\.({'|'.join(sorted(LEVELS))})\(")
ROW = re.compile(r"^\| `(\w+)` \| ((?:debug|info|warning|error|, )+) \|", re.MULTILINE)


@cache
def log_calls() -> list[tuple[str, ast.Call]]:
    """Place and call of every log line in the sources."""
    return list(_log_calls())


def _log_calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        if "testing" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        if not _LINE.search(text):  # so that fewer files are parsed
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr not in LEVELS:
                    continue
                receiver = ast.unparse(node.func.value)
                if re.search(r"\b_?log(ger)?\b|getLogger", receiver):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def event_of(call: ast.Call) -> ast.Call | None:
    """The `event(...)` that a log line is given."""
    for keyword in call.keywords:
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Call):
            return keyword.value
    return None


def name_of(call: ast.Call) -> str:
    found = event_of(call)
    assert found is not None
    assert isinstance(found.args[0], ast.Constant)
    return str(found.args[0].value)


def level_of(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    return "error" if call.func.attr == "exception" else call.func.attr


def test_every_log_line_has_a_name_made_for_searching() -> None:
    calls = log_calls()
    assert len(calls) > 50
    unnamed = [location for location, call in calls if event_of(call) is None]
    assert unnamed == []
    odd = [location for location, call in calls if not NAME.fullmatch(name_of(call))]
    assert odd == []


def test_the_documentation_lists_each_name_with_its_level_and_no_other() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    listed = {(name, level) for name, levels in ROW.findall(page) for level in levels.split(", ")}
    used = {(name_of(call), level_of(call)) for _, call in log_calls()}
    assert used - listed == set(), "missing in docs/monitoring.md"
    assert listed - used == set(), "in docs/monitoring.md, and logged nowhere"


def test_codes_of_log_lines_can_be_explained() -> None:
    for location, call in log_calls():
        found = event_of(call)
        codes = [each for each in found.keywords if each.arg == "code"] if found else []
        for each in codes:
            assert isinstance(each.value, ast.Constant), location
            assert each.value.value in CATALOG, location


def test_an_event_is_the_extra_of_a_log_record() -> None:
    assert event("topic_created", topic="t") == {
        "event": "topic_created",
        "code": None,
        "fields": {"topic": "t"},
    }


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


def test_a_step_of_a_task_survives_bugs_but_not_its_cancellation() -> None:
    task = FailingTask(logging.getLogger("lakelog.test"), "copying")
    with task:
        raise ValueError("planted")
    assert task.is_failing
    with pytest.raises(asyncio.CancelledError), task:
        raise asyncio.CancelledError
    assert task.is_failing
    with task:
        pass
    assert not task.is_failing
