from __future__ import annotations

import logging

import pytest

from lakelog.base.endpoint import Endpoint
from lakelog.server.event_log.log_window import LINES_MAX
from lakelog.server.event_log.peer_log import PeerLog
from storage_kit import ManualClock

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
