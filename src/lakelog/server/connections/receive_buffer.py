"""The receive buffer of a connection, and its part of the memory budget.

It holds requests that wait for their turn and the beginning of the next. It grows with the bytes
that are received, and its first few KiB are outside the budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import NamedTuple

from lakelog.base.memory_budget import Account, Share
from lakelog.server.connections.reply import Reply


class Claim(NamedTuple):
    """The bytes that an owner waits for; `resume` is called when they are promised to it."""

    size: int
    resume: Callable[[], object]


class RequestMemory:
    """Takes bytes of `share`, whose limit is `queued.max.request.bytes`, for their owners.

    A connection whose request does not fit stops reading until others have been handled. The first
    bytes of every connection are not counted: the number of connections bounds them. A request that
    fits into them is therefore handled even while incomplete requests hold all of the share. One
    connection at a time may overdraw, or several incomplete requests could wait for each other
    forever (`test_half_requests_share_one_budget_and_small_ones_are_heard_all_the_same`).

    Released bytes are promised to the waiting owners in the order of their claims, as far as they
    fit. Only these owners ask again.

    The share does not know how fast a request is received. `sweep` does, and closes connections
    that hold memory and make hardly any progress while others wait.
    """

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


FIRST_BUFFER_SIZE = 4 * 1024
"""Bytes that a connection may receive into outside the budget of all connections."""
BUFFER_SIZE_MIN = 64 * 1024
_UNHANDLED_MAX = 256 * 1024
_AHEAD_MAX = 512 * 1024
"""Largest buffer, in bytes, of a client that sends ahead."""
FRAME_SIZE = Struct(">i")
"""The size field before each request, which counts the bytes after it."""


class ReceiveBuffer:
    """The bytes in use lie between `start` and `end` of `buffer`; `view` is a view of it.

    The connection handles requests in place: it reads `view` and moves `start`, and calls no
    method of the buffer meanwhile. In the budget the buffer is an owner of its own.
    """

    __slots__ = ("_memory", "buffer", "end", "start", "view")

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self.buffer = bytearray(0)
        self.view = memoryview(self.buffer)
        self.start = 0
        self.end = 0

    def free_capacity(self, resume: Callable[[], object], *, stalled: bool) -> bool:
        """Return whether there is capacity to receive into.

        The buffer grows only when it is full, and never by a declared length alone. It does not
        grow at all while 256 KiB of requests are `stalled`. If the budget is used up (KIP-72),
        `resume` is called when it is worth asking again. Raises `MemoryError` if the process has
        no memory.
        """
        used = self.end - self.start
        if self.start:
            # Handled requests freed capacity, so nothing has to be granted: the beginning of the
            # next request moves to the front.
            self._memory.leave(self)
            rest = self.view[self.start : self.end]
            if not self._widen(rest):
                self.view[:used] = rest
        elif stalled and used >= _UNHANDLED_MAX:
            self._memory.leave(self)
            return False
        elif not self._grow(used, resume):
            return False
        self.start = 0
        self.end = used
        return True

    def _widen(self, rest: memoryview) -> bool:
        """Use a larger buffer for a client that sends ahead, if memory is plentiful.

        The more requests one call receives, the less each costs
        (`test_produce_and_fetch_cost_as_recorded`).
        """
        old = len(self.buffer)
        # Optional memory, hence `try_take`: the connection keeps its present buffer.
        size = max(BUFFER_SIZE_MIN, min(old * 4, _AHEAD_MAX))
        if size <= old or not self._memory.try_take(self, size - self.held_bytes):
            return False
        self._replace(size, rest)
        return True

    def _grow(self, used: int, resume: Callable[[], object]) -> bool:
        old = len(self.buffer)
        size = FIRST_BUFFER_SIZE
        if old:
            # At most four times the bytes that have arrived: a header that announces 100 MB and
            # sends nothing more holds 64 KiB.
            size = max(BUFFER_SIZE_MIN, min(old * 4, self._size_for(used)))
            if not self._memory.take(self, size - self.held_bytes, resume):
                return False
        self._replace(size, self.view[:used])
        return True

    def _replace(self, size: int, rest: memoryview) -> None:
        """Use a new buffer that begins with `rest`. The budget has granted its bytes already."""
        try:
            grown = bytearray(size)
        except MemoryError:
            # The old buffer stays, and the budget counts it alone again.
            granted = size if size > FIRST_BUFFER_SIZE else 0
            self._memory.give(self, granted - self.held_bytes)
            raise
        grown[: len(rest)] = rest
        self.buffer = grown
        self.view = memoryview(grown)

    def _size_for(self, used: int) -> int:
        """The size that holds the frame being received, and some of the next."""
        if used < FRAME_SIZE.size:
            return BUFFER_SIZE_MIN
        (size,) = FRAME_SIZE.unpack_from(self.buffer, 0)
        return max(used * 2, int(size) + FRAME_SIZE.size + BUFFER_SIZE_MIN)

    def drop(self) -> None:
        """Release the buffer and discard its contents."""
        size = self.held_bytes
        self.buffer = bytearray(0)
        self.view = memoryview(self.buffer)
        self.start = self.end = 0
        if size:
            self._memory.give(self, size)

    def shrink(self) -> None:
        """Give back the buffer, or most of it, if it holds at most `FIRST_BUFFER_SIZE` bytes.

        Raises `MemoryError` if the process has no memory for the small one.
        """
        # One byte more than fits shows that the rest is too long, without a copy of all of it.
        rest = bytes(self.view[self.start : self.end][: FIRST_BUFFER_SIZE + 1])
        if len(rest) > FIRST_BUFFER_SIZE:
            return
        self.drop()
        if rest:
            self._replace(FIRST_BUFFER_SIZE, memoryview(rest))
            self.end = len(rest)

    def close(self) -> None:
        """Release all bytes; nothing is received any more."""
        self.drop()
        self._memory.leave(self)
        assert not self._memory.of(self)

    @property
    def held_bytes(self) -> int:
        """Bytes that the buffer takes from the budget; a buffer of the first size takes none."""
        size = len(self.buffer)
        return size if size > FIRST_BUFFER_SIZE else 0

    @property
    def unhandled_bytes(self) -> int:
        """Bytes that have been received and not handled."""
        return self.end - self.start

    @property
    def missing_bytes(self) -> int:
        """Bytes that the peer must still send of the begun request; 0 between requests."""
        received = self.end - self.start
        if not received:
            return 0
        if received < FRAME_SIZE.size:
            return FRAME_SIZE.size - received
        size = int(FRAME_SIZE.unpack_from(self.buffer, self.start)[0])
        return size + FRAME_SIZE.size - received
