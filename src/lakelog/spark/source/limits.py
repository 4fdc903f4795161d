"""How much one micro-batch of a stream reads, and how long a stream waits for records."""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.tables.topic.offsets import Offsets, items

_DELAY_MAX_S = 15 * 60.0


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of one micro-batch; `None` is no limit.

    offsets_max, bytes_max: the largest batch. offsets_min: wait for as many offsets, at most
    `delay_max_s` seconds after the last batch.
    """

    offsets_max: int | None = None
    offsets_min: int | None = None
    bytes_max: int | None = None
    delay_max_s: float = _DELAY_MAX_S

    @property
    def are_set(self) -> bool:
        return (self.offsets_max, self.offsets_min, self.bytes_max) != (None, None, None)


class Pace:
    """Delays batches that are smaller than `offsets_min`.

    As in Spark's Kafka source, the first batch after a start is not delayed. Times are seconds of
    any clock that does not go back.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._last_s: float | None = None

    def delays(self, waiting: int, now_s: float) -> bool:
        """Return whether a batch of `waiting` offsets begins later; if not, it begins now."""
        least = self._limits.offsets_min
        is_late = self._last_s is None or now_s - self._last_s >= self._limits.delay_max_s
        if least is not None and waiting < least and not is_late:
            return True
        if waiting:
            self._last_s = now_s
        return False


def waiting_offsets(start: Offsets, end: Offsets) -> int:
    """Return the number of offsets between two points; new partitions begin at 0."""
    return sum(max(0, at - start.get(topic, {}).get(p, 0)) for (topic, p), at in items(end))
