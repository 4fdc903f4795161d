"""The records of a partition that retention must not delete: young ones, and the newest bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.checkers.observations import Place, Sent
from simulator.checkers.record_history import RecordHistory

_OVERHEAD_BYTES = 120
"""An upper bound of the bytes of a record and its batch besides the value."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits of one topic, and the clock of its broker."""

    age_ms: int
    size_bytes: int
    spread_ms: Callable[[float], float]
    """See `SimulatedClock.spread_ms`."""

    def lost(self, history: RecordHistory, topic_partition: Place, start: int) -> list[int]:
        """Return the offsets of records below the log start offset that retention had to keep.

        Both limits apply to whole segments. The newest record decides the age of a segment, and the
        segments behind a deleted one have at least `size_bytes`.
        """
        partition = history.partition(topic_partition)
        gone = [offset for offset in partition.values if partition.start <= offset < start]
        young = [offset for offset in gone if not self._is_old(history, partition.values[offset])]
        here = {
            value: sent
            for value, sent in history.sent.items()
            if sent.topic_partition == topic_partition
        }
        if not young or any(sent.twice for sent in here.values()):
            return []
        size = sum(
            len(value) + _OVERHEAD_BYTES
            for value, sent in here.items()
            if self._may_lie_behind(sent, max(young))
        )
        return young if size < self.size_bytes else []

    def _is_old(self, history: RecordHistory, value: bytes) -> bool:
        return self.spread_ms(history.sent[value].made_at) >= self.age_ms

    def _may_lie_behind(self, sent: Sent, offset: int) -> bool:
        known = max(sent.acked, sent.seen)
        return known < 0 or known > offset
