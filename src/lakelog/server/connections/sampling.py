"""Which batches of a connection have their records verified (`records.verify=sampled`).

A client that writes records wrongly mostly does so from the beginning, so the first batches are
verified. Later ones are verified now and then. The distance to the next grows with the number of
records in the last one, so that the walks cost a busy connection about a hundredth of its speed
whatever its batches are. It is bounded, so that a client that becomes faulty is noticed.
"""

from __future__ import annotations

from lakelog.records.batch import HEADER_SIZE
from lakelog.runtime.api import Buffer

_FIRST = 4
_APART = 500
_APART_PER_RECORD = 40
"""A walk over one record costs a tenth to a third of the append of one batch."""
_APART_MAX = 10_000
_COUNT_AT = HEADER_SIZE - 4


class Sampling:
    """The sample of one connection: `left` batches precede the next verified batch."""

    __slots__ = ("_first", "left")

    def __init__(self) -> None:
        self._first = _FIRST
        self.left = 0

    def note(self, batch: Buffer, *, sampled: bool) -> None:
        """Count a batch that was appended, or that waits until its records are walked.

        A batch that is rejected at once is not counted, so the next one is verified as well. For
        a batch that waited before its rejection, `repeat` has the same effect.
        """
        if not sampled:
            self.left -= 1
            return
        self._first -= 1
        if self._first <= 0:
            count = int.from_bytes(batch[_COUNT_AT:HEADER_SIZE], "big")
            self.left = min(_APART + _APART_PER_RECORD * count, _APART_MAX)

    def repeat(self) -> None:
        """Verify the next batch: a sampled one was counted when it began to wait, then rejected."""
        self._first = max(self._first, 0) + 1
        self.left = 0
