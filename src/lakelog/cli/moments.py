"""Parses and prints durations and points in time."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from lakelog.base.config.quantities import duration_ns
from lakelog.cli.failures import CliError

_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_EPOCH_MS = re.compile(r"\d{1,16}")


def parse_duration_s(text: str) -> float:
    """Return the seconds of `500ms`, `10s`, `1h30m`, `7d`, `2w`, or of a number of seconds.

    Raises `CliError`.
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        return duration_ns(text) / 1e9
    except ValueError as error:
        reason, _, hint = str(error).partition("; ")
        raise CliError("LL0902", f"{text!r} is {reason}", hint) from error


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Return milliseconds since the epoch of `now`, `-1h`, epoch milliseconds, or an ISO 8601 time.

    A time without a zone is UTC. Raises `CliError`.
    """
    text = text.strip()
    if text == "now":
        return now_ms
    if text.startswith("-"):
        return now_ms - int(parse_duration_s(text[1:]) * 1000)
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CliError(
            "LL0902",
            f"{text!r} is not a time",
            "write 2026-01-31T09:00:00Z, epoch milliseconds, or -1h for an hour ago",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def iso_utc(timestamp_ms: int) -> str | None:
    """Return ISO 8601 in UTC with milliseconds; `None` outside the years 1 to 9999 and for -1."""
    if timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
