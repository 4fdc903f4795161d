"""The lag of groups, in records and in seconds.

Seconds are derived from earlier log end offsets: each scrape notes them for partitions with a
committed offset, which lies between two of them (as kafka-lag-exporter does it). Nothing is read
from the log, whose old records may not be in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from lakelog.replica.partition_registry import PartitionRegistry

_POINTS_MAX = 60
_POINTS_APART_S = 5.0


class Committed(Protocol):
    @property
    def offset(self) -> int: ...


class Standing(Protocol):
    """A group: its id, its members, and its lag."""

    @property
    def group_id(self) -> str: ...

    @property
    def members(self) -> int: ...

    @property
    def offsets(self) -> Mapping[str, Mapping[int, Committed]]: ...


class Lag(NamedTuple):
    """The lag of a group in one partition, in records and in seconds.

    `seconds` is None while the committed offset is older than all noted log ends.
    """

    group: str
    topic: str
    partition: int
    committed: int
    records: int
    seconds: float | None


class _Point(NamedTuple):
    """The scrapes from `first` to `last` saw a log end at `end`."""

    end: int
    first: float
    last: float


class LagClock:
    """The log end offsets of earlier scrapes. `now` is monotonic, in seconds."""

    def __init__(self) -> None:
        self._points: dict[tuple[bytes, int], deque[_Point]] = {}

    def lags(
        self, standings: Iterable[Standing], partitions: PartitionRegistry, now: float
    ) -> Iterable[Lag]:
        """Yield the lag of every partition with a committed offset.

        `now` is in seconds on the monotonic clock.
        """
        ends: dict[tuple[bytes, int], int] = {}
        for standing in standings:
            for topic, offsets in standing.offsets.items():
                for index, committed in offsets.items():
                    partition = partitions.get(topic, index)
                    if partition is None:
                        continue
                    end = ends[partition.key] = partition.watermark.offset
                    records = max(0, end - committed.offset)
                    self._note(partition.key, end, now)
                    seconds = self._seconds(partition.key, committed.offset, records, now)
                    yield Lag(standing.group_id, topic, index, committed.offset, records, seconds)
        self._points = {key: points for key, points in self._points.items() if key in ends}

    def _note(self, key: tuple[bytes, int], end: int, now: float) -> None:
        points = self._points.setdefault(key, deque(maxlen=_POINTS_MAX))
        # An end that stays is one point, so an idle partition keeps its history.
        if points and end == points[-1].end:
            points[-1] = points[-1]._replace(last=now)
        elif not points or now - points[-1].last >= _POINTS_APART_S:
            points.append(_Point(end, now, now))

    def _seconds(
        self, key: tuple[bytes, int], offset: int, records: int, now: float
    ) -> float | None:
        if not records:
            return 0.0
        points = self._points[key]
        after = bisect_right(points, offset, key=lambda point: point.end)
        if not after:
            return None
        before = points[after - 1]
        if after == len(points):
            return max(0.0, now - before.last)
        share = (offset - before.end) / (points[after].end - before.end)
        return max(0.0, now - before.last - share * (points[after].first - before.last))
