from __future__ import annotations

from lakelog.server.connections.accept_rate import AcceptRate
from storage_kit import ManualClock


def test_a_second_s_worth_of_connections_is_accepted_at_once_and_then_one_by_one() -> None:
    clock = ManualClock()
    rate = AcceptRate(clock)
    for _ in range(10):
        assert rate.delay_s(10) == 0
        rate.take()
    assert rate.delay_s(10) == 0.1
    clock.now_ms += 200
    assert rate.delay_s(10) == 0
    rate.take()


def test_a_long_pause_earns_no_more_than_a_second() -> None:
    clock = ManualClock()
    rate = AcceptRate(clock)
    rate.delay_s(2)
    clock.now_ms += 60_000
    for _ in range(2):
        assert rate.delay_s(2) == 0
        rate.take()
    assert rate.delay_s(2) > 0
