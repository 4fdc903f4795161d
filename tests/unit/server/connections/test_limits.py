"""The connections that are closed when all together hold too much."""

from __future__ import annotations

from typing import Any

from fake_transport import FakeTransport
from lakelog.base.endpoint import SecurityProtocol
from lakelog.base.memory_budget import Share
from lakelog.server.connections.limits import AcceptRate, SharedLimit
from lakelog.server.connections.session import ClientSession
from lakelog.server.log_limits import ClosingLog
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


class Held:
    """A connection as a limit knows it; its bytes outlive it."""

    def __init__(self) -> None:
        self.session = ClientSession(FakeTransport(), "PLAINTEXT", SecurityProtocol.PLAINTEXT)
        self.closed = False

    def close(self) -> None:
        self.closed = True


def bound_of(most: int, *sizes: int) -> tuple[Any, list[Any]]:
    bound: Any = SharedLimit(Share(most), ClosingLog(ManualClock()), "too much")
    held = [Held() for _ in sizes]
    for each, size in zip(held, sizes, strict=True):
        bound.hold(each, size)
    return bound, held


def test_the_largest_is_closed() -> None:
    _, held = bound_of(1000, 300, 500, 250)
    assert [each.closed for each in held] == [False, True, False]


def test_bytes_of_a_closed_connection_close_no_other() -> None:
    bound, (small, large, late) = bound_of(1000, 300, 500, 0)
    small.close()
    bound.hold(late, 450)
    assert bound.total > 1000
    assert [each.closed for each in (large, late)] == [False, False]


def test_open_connections_stay_within_the_limit_besides_closed_ones() -> None:
    bound, (closed, *others) = bound_of(1000, 900, 50, 20)
    closed.close()
    bound.hold(others[0], 950)
    bound.hold(others[1], 60)
    assert [each.closed for each in others] == [True, False]
