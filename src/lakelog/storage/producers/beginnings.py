"""Where producers that a log does not know may begin.

Usually at any sequence: the entry of a producer may have expired without its knowledge (KIP-360).
But the first batches of a producer may have been lost or rejected while its next ones are on their
way. Accepting those would leave no place for the first: Java's producer repeats them until its
delivery timeout, as of a broker of Apache Kafka. So for a minute

- the unknown producers of a new leader begin at sequence 0: requests to the last leader may have
  failed;
- a producer whose batch was rejected begins with that batch, or with an earlier one. Further
  rejections delay this producer alone. Until then its batches get the error of the rejected one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lakelog.base.errors import ErrorCode

AWAITED_MS = 60_000
"""Twice the request timeout of most clients: until then the batches of a request that was lost
have been sent again."""
_REJECTED_MAX = 100
"""Rejected producers, of which the newest are kept: each client may invent any number."""


class _Rejected(NamedTuple):
    epoch: int
    sequence: int
    code: ErrorCode
    until_ms: int


class Beginnings:
    """The first sequences that one log awaits; `clock_ms` is a monotonic clock in milliseconds."""

    __slots__ = ("_all_until_ms", "_rejected", "clock_ms")

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self.clock_ms = clock_ms
        self._all_until_ms: int | None = None
        self._rejected: dict[int, _Rejected] = {}

    def await_all(self) -> None:
        """Make all unknown producers begin at sequence 0 for `AWAITED_MS`."""
        self._all_until_ms = self.clock_ms() + AWAITED_MS
        self._rejected.clear()

    def await_rejected(self, producer_id: int, epoch: int, sequence: int, code: ErrorCode) -> None:
        """Make an unknown producer begin with this rejected batch, or an earlier rejected one."""
        now_ms = self.clock_ms()
        before = self._rejected.pop(producer_id, None)
        if before is not None and before.epoch == epoch and now_ms < before.until_ms:
            sequence = min(sequence, before.sequence)
        elif len(self._rejected) == _REJECTED_MAX:
            del self._rejected[next(iter(self._rejected))]
        self._rejected[producer_id] = _Rejected(epoch, sequence, code, now_ms + AWAITED_MS)

    def refusal(self, producer_id: int, epoch: int, sequence: int) -> ErrorCode | None:
        """Return the retriable code for an unknown producer that may not begin at a sequence.

        None if it may. The sequence is not 0. LEADER_NOT_AVAILABLE stands for batches that a former
        leader may have lost.
        """
        if self._all_until_ms is not None:
            if self.clock_ms() < self._all_until_ms:
                return ErrorCode.LEADER_NOT_AVAILABLE
            self._all_until_ms = None
        rejected = self._rejected.pop(producer_id, None)
        if rejected is None or rejected.epoch != epoch:
            return None
        if sequence <= rejected.sequence or self.clock_ms() >= rejected.until_ms:
            return None
        self._rejected[producer_id] = rejected
        return rejected.code
