from __future__ import annotations

from lakelog.server.event_log.log_window import (
    LINES_MAX,
    WINDOW_S,
    LogWindow,
    left_out_text,
    one_line,
)
from storage_kit import ManualClock


def test_a_window_admits_a_bounded_number_of_lines_and_counts_the_others() -> None:
    clock = ManualClock()
    window = LogWindow(clock)
    assert [window.admit() for _ in range(LINES_MAX)] == [0] * LINES_MAX
    assert [window.admit() for _ in range(3)] == [None] * 3
    clock.now_ms += int(WINDOW_S * 1000)
    assert window.admit() == 3
    assert window.admit() == 0


def test_text_of_a_peer_is_one_printable_line_of_bounded_length() -> None:
    assert one_line("a\nb\x1b[31m") == r"a\nb\x1b[31m"
    assert len(one_line("x" * 5000)) < 1100


def test_a_line_names_the_lines_that_it_stands_for() -> None:
    assert left_out_text(0) == ""
    assert "3" in left_out_text(3)
