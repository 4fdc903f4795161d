"""One budget for what all connections together have received and not yet handled (KIP-72).

A connection whose request does not fit stops reading until others have been handled. The first
bytes of every connection are outside the budget: they are bounded by the number of connections, and
so nobody who holds half a request can keep others from being heard. One connection at a time may
overdraw, or several half requests could wait for each other for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class RequestMemory:
    """`limit` is in bytes (`queued.max.request.bytes`); 0 or less is none."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[Callable[[], object]] = deque()
        self._overdrawn: object = None
        self.used = 0

    @property
    def is_short(self) -> bool:
        """Whether somebody waits or has overdrawn: what is idle had better be given back."""
        return bool(self._waiting) or self._overdrawn is not None

    def take(self, owner: object, size: int, resume: Callable[[], object]) -> bool:
        """Whether `size` more bytes are granted to `owner`.

        If not, `resume` is called when it is worth asking again.
        """
        if 0 < self._limit < self.used + size:
            if self._overdrawn not in (None, owner):
                self._waiting.append(resume)
                return False
            self._overdrawn = owner
        self.used += size
        return True

    def give(self, owner: object, size: int) -> None:
        """Returns all that was granted to `owner`, and lets those who wait ask again."""
        self.used -= size
        assert self.used >= 0
        if self._overdrawn is owner:
            self._overdrawn = None
        waiting, self._waiting = self._waiting, deque()
        for resume in waiting:
            resume()
