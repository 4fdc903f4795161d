"""Durations and points in time as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from lakelog.cli.failures import CliError

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)?")
_EPOCH_MS = re.compile(r"\d{1,16}")


def parse_duration_s(text: str) -> float:
    """Seconds of `500ms`, `10s`, `5m`, `1h`, `7d`, `2w`, or of a plain number of seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise CliError("LL0902", f"{text!r} is not a duration", "write 500ms, 10s, 5m, 1h or 7d")
    return float(match[1]) * _UNITS_S[match[2] or "s"]


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch of `now`, `-1h`, epoch milliseconds, or an ISO 8601 time.

    A time without a zone is UTC.
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
    """ISO 8601 in UTC with milliseconds; None for "no timestamp" and for what no calendar holds."""
    if timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
