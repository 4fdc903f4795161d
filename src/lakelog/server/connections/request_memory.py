"""The bytes that all connections have received and not yet handled (KIP-72): the share `received`.

A connection whose request does not fit stops reading until others have been handled. The first
bytes of every connection are not counted: the number of connections bounds them. A request that
fits into them is therefore handled even while incomplete requests hold all of the share. One
connection at a time may overdraw, or several incomplete requests could wait for each other forever
(`test_half_requests_share_one_budget_and_small_ones_are_heard_all_the_same`).

Released bytes are promised to the waiting owners in the order of their claims, as far as they fit.
Only these owners ask again.

The share does not know how fast a request is received. `sweep` does, and closes
connections that hold memory and make hardly any progress while others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from lakelog.base.memory_budget import Account, Share
from lakelog.server.connections.reply import Reply


class Claim(NamedTuple):
    """The bytes that an owner waits for; `resume` is called when they are promised to it."""

    size: int
    resume: Callable[[], object]


class RequestMemory:
    """Takes bytes of `share`, whose limit is `queued.max.request.bytes`, for their owners."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self._account: Account[object] = Account(share)
        self._overdrawn: object = None
        self.waiting: dict[object, Claim] = {}
        """By owner, in the order of the claims."""
        self._promised: dict[object, int] = {}
        """Bytes of resumed owners that have not asked again yet; the share counts them as used."""
        self.is_short = False
        """Whether an owner waits or has overdrawn, so that idle memory should be given back."""

    def of(self, owner: object) -> int:
        """Return the bytes that `owner` holds."""
        return self._account.of(owner)

    def take(self, owner: object, size: int, resume: Callable[[], object]) -> bool:
        """Return whether `size` more bytes are granted to `owner`.

        If not, `resume` is called when they are promised to it; it then has to ask again, or leave.
        """
        self._forget(owner)  # bytes that were promised to the owner are asked for again here
        if not self.share.has(size):
            if self._overdrawn not in (None, owner):
                self.waiting[owner] = Claim(size, resume)
                self.is_short = True
                return False
            self._overdrawn = owner
        self._account.add(owner, size)
        self._note_shortage()
        return True

    def try_take(self, owner: object, size: int) -> bool:
        """Take `size` bytes that are useful but not needed, if half of the share stays free.

        Required by `test_optional_memory_leaves_half_of_the_budget_to_others`.
        """
        if 0 < self.share.bytes_max < 2 * (self.share.used + size):
            return False
        self._account.add(owner, size)
        return True

    @contextmanager
    def holding(self, reply: Reply, size: int) -> Iterator[None]:
        """Count `size` bytes of copied batches while this task handles their request.

        They exist whether they fit or not; connections receive less meanwhile. If the connection
        closes while requests exceed their memory, the task is cancelled: clients that connect,
        send and disconnect could otherwise leave any number of batches behind.
        """
        task = asyncio.current_task()

        def abandon() -> None:
            if self.share.is_exceeded and task is not None:
                task.cancel()
            else:
                reply.on_abandon = None

        reply.on_abandon = abandon
        self._account.add(reply, size)
        try:
            if reply.connection.closed:
                abandon()
            yield
        finally:
            self.give(reply, size)
        reply.on_abandon = None

    def give(self, owner: object, size: int) -> None:
        """Release `size` bytes of `owner`."""
        self._account.add(owner, -size)
        if self._overdrawn is owner:
            self._overdrawn = None
        if self.is_short:
            self._resume_waiting()

    def leave(self, owner: object) -> None:
        """Remove the claim of `owner`; bytes that were promised to it go to others."""
        self._forget(owner)
        # An owner that may overdraw and takes nothing would block all others for good.
        if self._overdrawn is owner and not self.of(owner):
            self._overdrawn = None
        if self.is_short:
            self._resume_waiting()

    def _forget(self, owner: object) -> None:
        self.waiting.pop(owner, None)
        self._account.add(owner, -self._promised.pop(owner, 0))

    def _resume_waiting(self) -> None:
        """Resume the first owners, as many as fit; one of them may overdraw."""
        for owner, claim in list(self.waiting.items()):
            # In the order of the claims, and no smaller claim passes a larger one: a large request
            # would otherwise wait for ever beside many small ones.
            if not self.share.has(claim.size):
                if self._overdrawn is not None:
                    break
                self._overdrawn = owner
            # Counted at once, although the owner asks again only in a later callback: a new owner
            # must not take the bytes first.
            del self.waiting[owner]
            self._promised[owner] = claim.size
            self._account.add(owner, claim.size)
            claim.resume()
        self._note_shortage()

    def _note_shortage(self) -> None:
        self.is_short = bool(self.waiting) or self._overdrawn is not None
