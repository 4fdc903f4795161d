"""How much of a partition retention has to leave: what is young, and the newest bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakelog.testing.simulation.checkers.observations import Place, Sent
from lakelog.testing.simulation.checkers.record_history import RecordHistory

_OVERHEAD_BYTES = 120
"""More than a record and its batch take besides the value, however it is compressed."""


@dataclass(frozen=True, slots=True)
class Retention:
    """`spread_ms` is how far apart a time and now may be by the broker's clock, or a right one."""

    age_ms: int
    size_bytes: int
    spread_ms: Callable[[float], float]

    def lost(self, history: RecordHistory, place: Place, start: int) -> list[int]:
        """Offsets of records that are below the log's start and had to stay.

        Both limits are for whole segments: the newest record of one decides about its age, and what
        lies behind it has at least `size_bytes`.
        """
        partition = history.partition(place)
        gone = [offset for offset in partition.values if partition.start <= offset < start]
        young = [offset for offset in gone if not self._is_old(history, partition.values[offset])]
        here = {value: sent for value, sent in history.sent.items() if sent.place == place}
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
