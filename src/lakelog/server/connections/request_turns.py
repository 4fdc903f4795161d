"""Bounds the time of requests in one turn of the event loop; the rest waits for later turns.

The loop serves every ready socket in one turn, so the next client would wait for the requests of a
thousand connections. One turn therefore handles requests for `PART_S`, and the rest wait here for
another turn. The first `FREE` units of work of a turn are not timed, which keeps an idle broker
fast. Requests other than Produce and Fetch are always timed, because their size does not bound
their cost.

Waiting connections are in three queues (`Rank`). Each turn serves each queue for `PART_S`, and at
least one connection of it, so none starves. A client that sends one request and waits for the
response is therefore delayed neither by a thousand connections that have just been opened, nor by
clients that send ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial

from lakelog.runtime.api import Clock
from lakelog.runtime.turns import PART_S, LoopTurns
from lakelog.server.connections.send_turns import SendTurns

FREE = 32
"""Units of work that are not timed. A Produce or Fetch is one, and one more for each full
`2 ** UNIT_SHIFT` bytes and each full `UNIT_S` that it took."""
UNIT_SHIFT = 15
UNIT_S = PART_S / FREE
SHARE = 64
"""Produce and Fetch requests of one connection in one callback, unless many wait."""
_TOGETHER = 512
"""Sum of the shares of all waiting connections; each may handle one request at least.

Required by `test_the_share_of_a_connection_shrinks_while_others_wait`."""


class Rank(IntEnum):
    """The queue of a waiting connection.

    Required by `test_a_waiting_client_precedes_newcomers_and_clients_that_send_ahead`.
    """

    ANSWERED = 0
    """Earlier requests of the connection were handled; this one is the first in its buffer."""
    NEW = 1
    """No request of the connection has been handled yet."""
    AHEAD = 2
    """The client sent more requests than the connection's share, or is gone."""


class RequestTurns:
    """The requests that all connections of a broker begin in a turn: a part of `LoopTurns`."""

    def __init__(self, clock: Clock, turns: LoopTurns) -> None:
        self._clock = clock
        self.loop_turns = turns
        turns.add(self._run)
        self._queues: tuple[deque[Callable[[], object]], ...] = tuple(deque() for _ in Rank)
        self._granted = False
        self._begun: float | None = None
        """When requests of this turn began to be timed, on the monotonic clock."""
        self.sending = SendTurns(turns)
        self.left = FREE
        """Units of work until `is_over` must be called; connections subtract theirs."""
        self.share = SHARE
        """Produce and Fetch requests that one callback may handle now."""
        self.waiting = 0
        """Number of waiting connections."""

    def is_over(self) -> bool:
        """Return whether this turn has taken `PART_S` seconds, once nothing is `left`.

        The first call in a turn starts the clock.
        """
        # A connection that is resumed has its turn even if the clock says otherwise, so that each
        # queue makes progress in every turn.
        if self._granted:
            return False
        if self._begun is None:
            self._begun = self._clock.monotonic()
            self.loop_turns.want()
            return False
        return self._clock.monotonic() - self._begun >= PART_S

    def may_begin(self) -> bool:
        """Return whether a request that is neither Produce nor Fetch may begin in this turn."""
        self.left = 0  # later requests of this turn are timed
        return not self.is_over()

    def wait(self, resume: Callable[[], object], rank: Rank) -> None:
        """Call `resume` in a later turn; it may then begin one request, or its share."""
        self._queues[rank].append(resume)
        self.waiting += 1
        self._set_share()
        self.loop_turns.want()

    def _set_share(self) -> None:
        self.share = min(SHARE, _TOGETHER // (1 + self.waiting)) or 1

    def _run(self) -> None:
        """Begin a turn: resume waiting connections before the loop reads any socket."""
        self.left = FREE
        self._begun = None
        if not self.waiting:
            return
        # The clock starts with the waiting connections, so they and the sockets share one turn.
        self._begun = self._clock.monotonic()
        try:
            for queue in self._queues:
                self.loop_turns.run_some(len(queue), partial(self._resume_next, queue))
        finally:
            self._granted = False
            self._set_share()
            if self.waiting:
                self.loop_turns.want()
            else:
                self._begun = None

    def _resume_next(self, queue: deque[Callable[[], object]]) -> bool:
        # Granted before the call: the connection asks `is_over` itself.
        self._granted = True
        self.waiting -= 1
        queue.popleft()()
        return True
