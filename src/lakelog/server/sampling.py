"""Which batches of a connection have their records verified (`records.verify=sampled`).

A client that writes records wrongly mostly does so from the beginning, so the first batches are;
later ones now and then, so rarely that it costs a busy connection a hundredth of its speed. A walk
costs half a microsecond a record, so after a batch of many the next is further off.
"""

from __future__ import annotations

from lakelog.records.batch import HEADER_SIZE
from lakelog.runtime.api import Buffer

_FIRST = 4
_APART = 500
_COUNT_AT = HEADER_SIZE - 4


class Sampling:
    """Of one connection. `left` batches come before the next one that is verified."""

    __slots__ = ("_first", "left")

    def __init__(self) -> None:
        self._first = _FIRST
        self.left = 0

    def note(self, batch: Buffer, *, sampled: bool) -> None:
        """Counts a batch that was appended. After a refused one the next is verified as it was."""
        if not sampled:
            self.left -= 1
            return
        self._first -= 1
        if self._first <= 0:
            count = int.from_bytes(batch[_COUNT_AT:HEADER_SIZE], "big")
            self.left = max(_APART, count)
