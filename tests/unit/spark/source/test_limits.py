from __future__ import annotations

import pytest

from lakelog.spark.source.limits import BatchLimits, Pace, waiting_offsets


@pytest.mark.parametrize("name", ["offsets_max", "offsets_min", "bytes_max"])
def test_each_limit_makes_a_query_limited(name: str) -> None:
    assert not BatchLimits().are_set
    assert not BatchLimits(delay_max_s=1.0).are_set, "a delay without a minimum limits nothing"
    assert BatchLimits(**{name: 1}).are_set


def test_without_a_minimum_no_batch_is_delayed() -> None:
    pace = Pace(BatchLimits(offsets_max=5))
    assert not any(pace.delays(waiting, 0.0) for waiting in (0, 1, 9))


def test_the_delay_counts_from_the_last_batch_with_records() -> None:
    pace = Pace(BatchLimits(offsets_min=5, delay_max_s=10.0))
    assert not pace.delays(5, 0.0)
    assert pace.delays(4, 9.0)
    assert not pace.delays(0, 10.0), "nothing waits, so no batch begins"
    assert not pace.delays(1, 11.0), "the delay is over"
    assert pace.delays(1, 20.9)
    assert not pace.delays(1, 21.0)


def test_offsets_of_partitions_that_shrank_do_not_count() -> None:
    start = {"t": {0: 10, 1: 5}}
    assert waiting_offsets(start, {"t": {0: 3, 1: 9, 2: 6}}) == 10
