from __future__ import annotations

from lakelog.cli.local_cluster.restarts import Restarts


def test_pauses_double_up_to_half_a_minute() -> None:
    restarts = Restarts()
    assert [restarts.pause_s(0.1) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_process_that_ran_for_a_minute_starts_again_at_once() -> None:
    restarts = Restarts()
    assert [restarts.pause_s(ran) for ran in (1, 1, 60, 1)] == [0.5, 1, 0.5, 1]
