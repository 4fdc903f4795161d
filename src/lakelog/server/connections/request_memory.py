"""One budget for the bytes that all connections have received and not yet handled (KIP-72).

A connection whose request does not fit stops reading until others have been handled. The first
bytes of every connection are outside the budget: the number of connections bounds them. So a
request that fits into them is handled however many connections hold half of theirs. One connection
at a time may overdraw, or several half requests could wait for each other forever.

The budget does not know how fast a request is received. `memory_relief` does, and closes
connections that hold memory and make hardly any progress while others wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Claim(NamedTuple):
    """The bytes that an owner waits for; `resume` is called when it is worth asking again."""

    size: int
    resume: Callable[[], object]


class RequestMemory:
    """`limit` is in bytes (`queued.max.request.bytes`); 0 or less is no limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._overdrawn: object = None
        self.waiting: dict[object, Claim] = {}
        """By owner."""
        self.used = 0
        self.is_short = False
        """Whether an owner waits or has overdrawn, so that idle memory should be given back."""

    @property
    def is_exceeded(self) -> bool:
        """Whether more than the budget is used."""
        return 0 < self.limit < self.used

    def take(self, owner: object, size: int, resume: Callable[[], object]) -> bool:
        """Return whether `size` more bytes are granted to `owner`.

        If not, `resume` is called when it is worth asking again.
        """
        if 0 < self.limit < self.used + size:
            if self._overdrawn not in (None, owner):
                self.waiting[owner] = Claim(size, resume)
                self.is_short = True
                return False
            self._overdrawn = owner
            self.is_short = True
        if self.is_short:
            self.leave(owner)
        self.used += size
        return True

    def try_take(self, size: int) -> bool:
        """Take `size` bytes that are useful but not needed, if half of the budget stays free."""
        if 0 < self.limit < 2 * (self.used + size):
            return False
        self.used += size
        return True

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count `size` bytes that exist whether they fit or not; connections receive less."""
        self.used += size
        try:
            yield
        finally:
            self.give(None, size)

    def give(self, owner: object, size: int) -> None:
        """Return `size` bytes of `owner` to the budget, and have the waiting owners ask again."""
        self.used -= size
        assert self.used >= 0
        if self._overdrawn is owner:
            self._overdrawn = None
        waiting, self.waiting = self.waiting, {}
        self.is_short = self._overdrawn is not None
        for claim in waiting.values():
            claim.resume()

    def leave(self, owner: object) -> None:
        """Remove `owner` from the waiting ones."""
        self.waiting.pop(owner, None)
        self.is_short = bool(self.waiting) or self._overdrawn is not None
