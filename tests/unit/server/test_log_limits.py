from __future__ import annotations

import logging

import pytest

from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.member import JoinRefusal
from lakelog.server.log_limits import (
    LINES_MAX,
    WINDOW_S,
    ClosingLog,
    LogWindow,
    PeerLog,
    RefusedJoins,
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


PEER = Endpoint("PLAINTEXT", "kafka-2", 9092)


def test_an_operator_sees_the_peer_and_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    log = PeerLog(ManualClock())
    with caplog.at_level(logging.INFO):
        log.connected(2, PEER)
        log.unreachable(2, PEER, "broker 2 at kafka-2:9092: connection refused")
        log.refused(2, PEER, "broker 2 at kafka-2:9092: another cluster")
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "Connected to broker 2 at kafka-2:9092"),
        ("WARNING", "Cannot reach broker 2 at kafka-2:9092: connection refused"),
        ("WARNING", "Not connected to broker 2 at kafka-2:9092: another cluster"),
    ]


def test_a_peer_that_fails_again_and_again_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    log = PeerLog(clock)
    for _ in range(LINES_MAX + 7):
        log.unreachable(2, PEER, "broker 2: connection refused")
    assert len(caplog.records) == LINES_MAX
    clock.now_ms += 3_600_000
    log.unreachable(2, PEER, "broker 2: connection refused")
    assert "7" in caplog.records[-1].message


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
