"""Shares the turns of the event loop among connections whose requests take long together.

The loop serves every socket that is ready in one turn, so a thousand connections that all ask at
once would keep the next client waiting for all of them. One turn therefore handles requests for
`TURN_S`, and the rest wait here for another turn. While there is little to do, nothing is timed:
the first `FREE` requests pass. Requests other than Produce and Fetch are always timed, because
their size does not bound their cost.

Waiting connections are in three queues (`Rank`). Each turn serves each queue for `TURN_S`, and at
least one connection of it, so none starves. A client that sends one request and waits for the
response is therefore delayed neither by a thousand connections that have just been opened, nor by
clients that send ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum

from lakelog.runtime.api import Clock, Tasks
from lakelog.server.connections.send_turns import SendTurns

TURN_S = 0.002
"""Seconds of one turn for each queue, and for requests that have not waited."""
FREE = 32
"""Units of work that are not timed. A Produce or Fetch is one, and one more for each full
`2 ** UNIT_SHIFT` bytes and each full `UNIT_S` that it took."""
UNIT_SHIFT = 15
UNIT_S = TURN_S / FREE
SHARE = 64
"""Produce and Fetch requests of one connection in one callback, unless many wait."""
_TOGETHER = 512
"""Sum of the shares of all waiting connections; each may handle one request at least."""


class Rank(IntEnum):
    """The queue of a waiting connection."""

    ANSWERED = 0
    """Earlier requests of the connection were handled; this one is the first in its buffer."""
    NEW = 1
    """No request of the connection has been handled yet."""
    AHEAD = 2
    """The client sent more requests than the connection's share, or is gone."""


class RequestTurns:
    """One for all connections of a broker."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._queues: tuple[deque[Callable[[], object]], ...] = tuple(deque() for _ in Rank)
        self._granted = False
        self._next_is_due = False
        self._begun = 0.0
        self.sending = SendTurns(tasks)
        self.left = FREE
        """Units that pass before `is_over` has to be asked; connections subtract theirs."""
        self.share = SHARE
        """Produce and Fetch requests that one callback may handle now."""
        self.waiting = 0
        """Connections."""

    def is_over(self) -> bool:
        """Return whether this turn has taken its time, once nothing is `left`.

        The first caller of a turn starts the clock.
        """
        if self._granted:
            return False
        if not self._next_is_due:
            self._want_next()
            return False
        return self._clock.monotonic() - self._begun >= TURN_S

    def may_begin(self) -> bool:
        """Return whether a request that is neither Produce nor Fetch may begin in this turn."""
        self.left = 0
        if self._granted:
            self._granted = False
            return True
        return not self.is_over()

    def wait(self, resume: Callable[[], object], rank: Rank) -> None:
        """Calls `resume` in a later turn; it may then begin one request, or its share."""
        self._queues[rank].append(resume)
        self.waiting += 1
        self._set_share()
        self._want_next()

    def _set_share(self) -> None:
        self.share = min(SHARE, _TOGETHER // (1 + self.waiting)) or 1

    def _want_next(self) -> None:
        if not self._next_is_due:
            self._next_is_due = True
            self._begun = self._clock.monotonic()
            self._tasks.call_soon(self.next_turn)

    def next_turn(self) -> None:
        """Begin a turn: waiting connections have theirs before any socket is read."""
        self.left = FREE
        if not self.waiting:
            self._next_is_due = False
            return
        self._begun = self._clock.monotonic()
        try:
            for queue in self._queues:
                self._resume_some(queue)
        finally:
            self._granted = False
            self._set_share()
            self._next_is_due = self.waiting > 0
            if self._next_is_due:
                self._tasks.call_soon(self.next_turn)

    def _resume_some(self, queue: deque[Callable[[], object]]) -> None:
        until = self._clock.monotonic() + TURN_S
        for _ in range(len(queue)):
            self._granted = True
            self.waiting -= 1
            queue.popleft()()
            if self._clock.monotonic() >= until:
                return
