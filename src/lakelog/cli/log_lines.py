"""The broker's log on stderr: text on a terminal, JSON otherwise."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from lakelog.cli.failures import CliError

if TYPE_CHECKING:
    from typing import TextIO

FORMATS = ("auto", "text", "json")

_DATE = "%Y-%m-%dT%H:%M:%S"
_UNNAMED = "other"


def start_logging(level: int, log_format: str | None = None, stream: TextIO | None = None) -> None:
    """Log records of `level` and above to stderr, with times in UTC.

    Raises `CliError` for a format that is not in `FORMATS`.
    """
    if log_format not in (None, *FORMATS):
        raise CliError(
            "LL0902", f"unknown --log-format {log_format}; expected one of {', '.join(FORMATS)}"
        )
    out = sys.stderr if stream is None else stream
    is_text = log_format == "text" or (log_format != "json" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(text_lines() if is_text else JsonLines())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)


def text_lines() -> logging.Formatter:
    """Return the text format: time, level, name of the event, message."""
    line = TextLines("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", datefmt=_DATE)
    line.converter = time.gmtime
    return line


class TextLines(logging.Formatter):
    """Text lines, with the name of the event before the message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        record.message = f"{_event(record)}: {record.message}"
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """One JSON object per line, with `ts`, `level`, `event`, `message` and `logger`.

    `event` is a stable name (`lakelog.base.events`); records of libraries have `other`. `code`
    (LL0000) and further fields appear where they apply.
    """

    def format(self, record: logging.LogRecord) -> str:
        import json

        moment = time.strftime(_DATE, time.gmtime(record.created))
        line = {
            "ts": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": _event(record),
            "message": record.getMessage(),
            "logger": record.name,
        }
        code = getattr(record, "code", None)
        if code is not None:
            line["code"] = code
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def _event(record: logging.LogRecord) -> str:
    return str(getattr(record, "event", _UNNAMED))
