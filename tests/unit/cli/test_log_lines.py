from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from lakelog.base.events import event
from lakelog.cli.failures import CliError
from lakelog.cli.log_lines import JsonLines, start_logging, text_lines


def _record(template: str, *values: object, **extra: object) -> logging.LogRecord:
    logger = logging.getLogger("lakelog.x")
    record = logger.makeRecord(
        "lakelog.x", logging.WARNING, "x.py", 1, template, values, None, extra=extra
    )
    record.created, record.msecs = 1_700_000_000.25, 250.0
    return record


def test_a_line_of_json_has_the_fields_that_programs_look_for() -> None:
    assert json.loads(JsonLines().format(_record("%s-%d is ä %.1f\n", "t", 3, 0.5))) == {
        "ts": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "event": "other",
        "message": "t-3 is ä 0.5\n",
        "logger": "lakelog.x",
    }


def test_the_event_is_that_of_the_caller() -> None:
    record = _record("Created topic '%s'", "t", **event("topic_created", topic="t"))
    line = json.loads(JsonLines().format(record))
    assert (line["event"], line["topic"]) == ("topic_created", "t")
    assert "code" not in line


def test_a_code_and_more_fields_are_there_where_they_apply() -> None:
    record = _record("x", code="LL0304", fields={"api": "Fetch", "duration_s": 1.5})
    line = json.loads(JsonLines().format(record))
    assert (line["code"], line["api"], line["duration_s"]) == ("LL0304", "Fetch", 1.5)


def test_a_traceback_does_not_break_the_line() -> None:
    record = _record("x")
    try:
        raise ZeroDivisionError
    except ZeroDivisionError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    line = JsonLines().format(record)
    assert "\n" not in line
    assert "ZeroDivisionError" in json.loads(line)["traceback"]


def test_a_line_of_text() -> None:
    record = _record("%d!", 3, **event("counted"))
    assert text_lines().format(record) == "2023-11-14T22:13:20.250Z WARNING counted: 3!"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.mark.parametrize(
    ("out", "wanted", "is_json"),
    [
        (Terminal(), None, False),
        (Terminal(), "auto", False),
        (Terminal(), "json", True),
        (io.StringIO(), "auto", True),
        (io.StringIO(), "text", False),
    ],
)
def test_text_is_for_terminals(
    out: io.StringIO, wanted: str | None, is_json: bool, root: logging.Logger
) -> None:
    start_logging(logging.INFO, wanted, out)
    logging.getLogger("lakelog.x").info("hello")
    assert out.getvalue().startswith("{") == is_json
    assert "hello" in out.getvalue()


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(
        CliError, match="unknown --log-format xml; expected one of auto, text, json"
    ):
        start_logging(logging.INFO, "xml")
