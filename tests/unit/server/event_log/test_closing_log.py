"""The log lines about closed connections, of which there may be many."""

from __future__ import annotations

import pytest

from lakelog.server.event_log.closing_log import ClosingLog
from lakelog.server.event_log.log_window import LINES_MAX, WINDOW_S


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ms(self) -> int:
        return int(self.now * 1000)

    def wall_ms(self) -> int:
        return int(self.now * 1000)


def test_each_closed_connection_has_its_line_while_there_are_few(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    log = ClosingLog(clock)
    for number in range(3 * LINES_MAX):
        log.closing(f"peer {number}", "no reason")
        clock.now += 1.01 * WINDOW_S / LINES_MAX
    assert [record.message for record in caplog.records] == [
        f"closing peer {number}: no reason" for number in range(3 * LINES_MAX)
    ]


def test_a_crowd_has_some_lines_and_the_next_line_counts_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    log = ClosingLog(clock)
    for number in range(10_000):
        log.closing(f"peer {number}", "no reason")
    assert len(caplog.records) == LINES_MAX
    clock.now += WINDOW_S
    log.closing("late", "too late")
    log.closing("later", "too late")
    assert [record.message for record in caplog.records[LINES_MAX:]] == [
        f"closing late: too late (and {10_000 - LINES_MAX} others before it, without a line)",
        "closing later: too late",
    ]


def test_bugs_in_a_crowd_have_some_tracebacks_too(caplog: pytest.LogCaptureFixture) -> None:
    log = ClosingLog(FakeClock())
    for _ in range(1_000):
        log.bug("Heartbeat", "a peer", ZeroDivisionError())
    assert len(caplog.records) == LINES_MAX
    assert all(record.exc_info for record in caplog.records)


def test_a_reason_stays_in_its_line(caplog: pytest.LogCaptureFixture) -> None:
    ClosingLog(FakeClock()).closing("a peer", "topic 'a\nWARNING all is lost\x1b[2J'")
    (record,) = caplog.records
    assert record.message == r"closing a peer: topic 'a\nWARNING all is lost\x1b[2J'"


def test_a_reason_is_cut_where_it_repeats_a_long_name(caplog: pytest.LogCaptureFixture) -> None:
    ClosingLog(FakeClock()).closing("a peer", "n" * 32_767)
    (record,) = caplog.records
    assert record.message == f"closing a peer: {'n' * 1000}..."
