from __future__ import annotations

import pytest

from lakelog.cli.failures import CliError
from lakelog.cli.moments import iso_utc, parse_duration_s, parse_moment_ms


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10),
        ("5", 5),
        ("1.5m", 90),
        ("2h", 7200),
        ("7d", 604_800),
        ("1h30m", 5400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "10 parsecs", "1e3"])
def test_a_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(CliError):
        parse_duration_s(text)


def test_moments() -> None:
    assert parse_moment_ms("now", 7) == 7
    assert parse_moment_ms("1970-01-01T00:00:01.500Z", 7) == 1500


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_500, "1970-01-01T00:00:01.500Z"),
        (-1, None),
        (2**62, None),
    ],
)
def test_iso_never_fails(timestamp_ms: int, text: str | None) -> None:
    assert iso_utc(timestamp_ms) == text
