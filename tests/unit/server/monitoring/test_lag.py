from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lakelog.server.monitoring.lag import Lag, LagClock

KEY = (b"id", 0)


class GroupLag:
    """A group that has read up to `committed` of a log that ends at `end`."""

    def __init__(self) -> None:
        self.clock = LagClock()
        self.partition = SimpleNamespace(key=KEY, watermark=SimpleNamespace(offset=0))

    def lag(self, now: float, *, end: int, committed: int) -> Lag:
        self.partition.watermark.offset = end
        offsets = {"t": {0: SimpleNamespace(offset=committed), 7: SimpleNamespace(offset=1)}}
        standing: Any = SimpleNamespace(group_id="g", members=1, offsets=offsets)
        partitions: Any = SimpleNamespace(get=lambda _, i: self.partition if i == 0 else None)
        (lag,) = self.clock.lags([standing], partitions, now)
        return lag


def test_a_group_at_the_end_has_no_lag() -> None:
    assert GroupLag().lag(0.0, end=5, committed=5) == Lag("g", "t", 0, 5, 0, 0.0)


def test_an_offset_beyond_the_end_is_no_lag() -> None:
    assert GroupLag().lag(0.0, end=5, committed=9).records == 0


def test_seconds_are_interpolated_between_scrapes() -> None:
    group = GroupLag()
    group.lag(0.0, end=100, committed=100)
    group.lag(10.0, end=200, committed=100)
    assert group.lag(20.0, end=200, committed=150) == Lag("g", "t", 0, 150, 50, 15.0)


def test_seconds_grow_while_nothing_is_read_and_nothing_comes() -> None:
    group = GroupLag()
    group.lag(0.0, end=100, committed=100)
    group.lag(10.0, end=200, committed=100)
    assert group.lag(70.0, end=200, committed=100).seconds == 70.0


def test_before_anything_was_seen_seconds_are_unknown() -> None:
    assert GroupLag().lag(0.0, end=100, committed=50) == Lag("g", "t", 0, 50, 50, None)


def test_a_log_without_committed_offsets_is_forgotten() -> None:
    group = GroupLag()
    group.lag(0.0, end=100, committed=100)
    partitions: Any = SimpleNamespace(get=lambda _, i: None)
    assert list(group.clock.lags([], partitions, 1.0)) == []
    assert group.lag(2.0, end=100, committed=50).seconds is None
