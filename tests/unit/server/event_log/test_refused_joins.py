from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.refusal import JoinRefusal
from lakelog.server.event_log.log_window import LINES_MAX
from lakelog.server.event_log.refused_joins import RefusedJoins
from storage_kit import ManualClock

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_refusal_has_one_line_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    refusal = JoinRefusal("orders", "app-1", "app\n", "/10.0.0.1", FULL, "it has 10 members")
    RefusedJoins(ManualClock()).note(refusal)
    assert caplog.messages == [
        r"group 'orders' refuses member 'app-1' of client 'app\n' at 10.0.0.1 with "
        "GROUP_MAX_SIZE_REACHED: it has 10 members"
    ]
    (record,) = caplog.records
    assert vars(record)["event"] == "join_refused"
    assert vars(record)["fields"] == {
        "group": "orders",
        "member_id": "app-1",
        "client_id": r"app\n",
        "error": "GROUP_MAX_SIZE_REACHED",
    }


def test_a_crowd_and_long_names_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    refused = RefusedJoins(ManualClock())
    group, member, client, host, reason = (letter * 32_767 for letter in "gmchr")
    refusal = JoinRefusal(group, member, client, host, FULL, reason)
    for _ in range(2 * LINES_MAX):
        refused.note(refusal._replace(client_host="/10.0.0.1"))
    assert len(caplog.messages) == LINES_MAX
    assert max(map(len, caplog.messages)) < 5000
