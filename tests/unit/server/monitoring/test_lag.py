from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.server.monitoring.lag import Lag, LagClock
from storage_kit import NOW, make_batch, memory_store, sole_leader


@dataclass(frozen=True)
class CommittedOffset:
    """Implements `lag.Committed`."""

    offset: int


@dataclass(frozen=True)
class GroupStanding:
    """Implements `lag.Standing`."""

    group_id: str
    members: int
    offsets: Mapping[str, Mapping[int, CommittedOffset]]


class GroupLag:
    """A group that has read up to `committed` of a log that ends at `end`."""

    def __init__(self) -> None:
        self.clock = LagClock()
        self.partition = Partition(
            memory_store().create("t"), sole_leader(0), lambda partition: None
        )
        self.partitions = PartitionRegistry()
        self.partitions.add(self.partition)

    def lag(self, now: float, *, end: int, committed: int) -> Lag:
        missing = end - self.partition.watermark.offset
        if missing:
            self.partition.append(make_batch(missing), NOW)
        offsets = {"t": {0: CommittedOffset(committed), 7: CommittedOffset(1)}}
        (lag,) = self.clock.lags([GroupStanding("g", 1, offsets)], self.partitions, now)
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
    assert list(group.clock.lags([], group.partitions, 1.0)) == []
    assert group.lag(2.0, end=100, committed=50).seconds is None
