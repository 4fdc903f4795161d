"""Shares the turns of the event loop among connections that want much at the same time.

Whoever sends one Produce or Fetch after the other is handled as soon as it is read, and knows
nothing of this. The rest waits here once there is more of it than a turn can take: requests of
other APIs, whose cost is not bounded by their size, and what connections have sent beyond the
share of one turn. So a thousand connections with fifty Metadata requests each are answered a few
at a time, and a good client beside them has its turn after each of these few.

First come those that wait for the first request they have sent, so that a client that asks and
waits is not behind one that asks on and on; but one of the others has its turn each time, or every
other time while turns are so long that only one goes on in each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from lakelog.runtime.api import Clock, Tasks
from lakelog.server.send_turns import SendTurns

SHARE = 64
"""Produce and Fetch requests of one connection handled in one callback while nobody waits, or after
it has waited."""
MANY = 16
"""Requests of one connection in one callback that need not be told of."""
_TOGETHER = 512
"""Beyond so many that have been told of, one callback has one more in the same turn."""
COSTLY_MAX = 4
"""Requests of other APIs that begin in one turn, and connections that go on after a wait."""
_TURN_S = 0.001
"""After a longer turn the next one begins half as many of them."""


class RequestTurns:
    """One for all connections of a broker."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._first: deque[Callable[[], object]] = deque()
        self._later: deque[Callable[[], object]] = deque()
        self._left = self._allowed = COSTLY_MAX
        self._granted = False
        self._later_was_chosen = False
        self._next_is_due = False
        self._begun = 0.0
        self._noted = 0
        self.sending = SendTurns(tasks)
        self.share = SHARE
        """Produce and Fetch requests that one callback may handle now."""

    def may_begin(self) -> bool:
        """Whether a request that is neither Produce nor Fetch may begin in this turn."""
        if self._granted:
            self._granted = False
            return True
        if self._left <= 0:
            return False
        self._left -= 1
        self._want_next()
        return True

    def note(self, handled: int) -> None:
        """One connection has had more than `MANY` in this callback."""
        self._noted += handled
        self._set_share()
        self._want_next()

    def _set_share(self) -> None:
        """So that a turn has `_TOGETHER` and one of each connection, or little more."""
        if self._noted > _TOGETHER:
            self.share = 1
        else:
            self.share = max(1, SHARE // (1 + self.waiting))

    def wait(self, resume: Callable[[], object], *, is_first: bool) -> None:
        """`resume` is called when it is its turn; `is_first` without one in its last breath."""
        (self._first if is_first else self._later).append(resume)
        self._set_share()
        self._want_next()

    @property
    def waiting(self) -> int:
        """Connections."""
        return len(self._first) + len(self._later)

    def _want_next(self) -> None:
        if not self._next_is_due:
            self._next_is_due = True
            self._begun = self._clock.monotonic()
            self._tasks.call_soon(self.next_turn)

    def next_turn(self) -> None:
        """Begins a turn: before anything is read in it, those that wait have theirs."""
        self._next_is_due = False
        self._noted = 0
        took_s = self._clock.monotonic() - self._begun
        allowed = self._allowed // 2 if took_s > _TURN_S else self._allowed + 1
        self._left = self._allowed = min(max(1, allowed), COSTLY_MAX)
        self.share = SHARE
        chosen = self._chosen()
        try:
            while chosen:
                self._granted = True
                chosen.popleft()()
        finally:
            self._first.extendleft(reversed(chosen))
            self._granted = False
            self._set_share()
            if self.waiting:
                self._want_next()

    def _chosen(self) -> deque[Callable[[], object]]:
        chosen: deque[Callable[[], object]] = deque()
        self._later_was_chosen = bool(self._later) and not (
            self._left == 1 and self._later_was_chosen
        )
        if self._later_was_chosen:
            chosen.append(self._later.popleft())
            self._left -= 1
        for queue in (self._first, self._later):
            while queue and self._left > 0:
                chosen.append(queue.popleft())
                self._left -= 1
        return chosen
