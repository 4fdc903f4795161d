from __future__ import annotations

import pytest

from lakelog.server.log_window import LINES_MAX
from lakelog.server.refused_joins import RefusedJoins
from storage_kit import ManualClock


def test_a_refusal_has_one_line_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    RefusedJoins(ManualClock()).note("orders", "app\n", "/10.0.0.1", "it has 10 members")
    assert caplog.messages == [
        r"group 'orders' refuses client 'app\n' of 10.0.0.1: it has 10 members"
    ]


def test_a_crowd_and_long_names_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    refused = RefusedJoins(ManualClock())
    for _ in range(2 * LINES_MAX):
        refused.note("g" * 32_767, "c" * 32_767, "/10.0.0.1", "r" * 32_767)
    assert len(caplog.messages) == LINES_MAX
    assert max(map(len, caplog.messages)) < 4000
