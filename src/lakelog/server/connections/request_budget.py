"""Bounds what each iteration of the event loop handles and sends; the rest waits for later ones.

The loop serves every ready socket in one loop iteration, so the next client would wait for the
requests of a thousand connections. One loop iteration therefore handles requests for `PART_S`, and
the rest wait here for another loop iteration. The first `FREE` units of work of a loop iteration
are not timed, which keeps an idle broker fast. Requests other than Produce and Fetch are always
timed, because their size does not bound their cost.

Waiting connections are in three queues (`Rank`). Each loop iteration serves each queue for
`PART_S`, and at least one connection of it, so none starves. A client that sends one request and
waits for the response is therefore delayed neither by a thousand connections that have just been
opened, nor by clients that send ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial

from lakelog.runtime.api import Clock
from lakelog.runtime.loop_iterations import PART_S, LoopIterations

ITERATION_BYTES = 2 * 1024 * 1024
"""About a millisecond of copying."""
SMALL = 32 * 1024
"""Bytes of unsent responses that a connection sends without a loop iteration, and that no loop
iteration counts."""


class SendBudget:
    """The bytes that all connections of a broker send in a loop iteration: a part of
    `LoopIterations`.

    A socket takes up to megabytes at once, so a thousand slow readers of large fetches would hold
    the loop for seconds whenever their sockets have capacity. All connections together send
    `ITERATION_BYTES` in a loop iteration, or little more. Connections that come too late wait here,
    in the order of coming. Responses up to `SMALL` are exempt: they cost less than waiting, and a
    client that gets only such responses never waits for the readers of large ones
    (`test_a_small_response_does_not_wait_for_large_ones`).
    """

    def __init__(self, iterations: LoopIterations) -> None:
        self._iterations = iterations
        iterations.add(self._run)
        self._waiting: deque[Callable[[], object]] = deque()
        self.left = ITERATION_BYTES
        """Bytes that may be sent before the next loop iteration."""

    def spend(self, size: int) -> None:
        """Count `size` bytes sent by a connection.

        The next loop iteration is scheduled only when half is spent, so that it costs a single
        reader hardly anything. The bytes spent before that may have been spent in earlier loop
        iterations.
        """
        self.left -= size
        if self.left < ITERATION_BYTES // 2:
            self._iterations.want()

    def wait(self, resume: Callable[[], object]) -> None:
        """Call `resume` once in a later loop iteration, in the order of calls.

        An exception of `resume` ends the loop iteration; the other connections wait for the next
        one.
        """
        self._waiting.append(resume)
        self._iterations.want()

    @property
    def waiting(self) -> int:
        """Connections."""
        return len(self._waiting)

    def _run(self) -> None:
        """Resume waiting connections, which precede sockets that have capacity only now."""
        self.left = ITERATION_BYTES
        try:
            for _ in range(len(self._waiting)):
                if self.left <= 0:
                    break
                self._waiting.popleft()()
        finally:
            if self._waiting:
                self._iterations.want()


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


class RequestBudget:
    """The requests that all connections of a broker begin in a loop iteration: a part of
    `LoopIterations`."""

    def __init__(self, clock: Clock, iterations: LoopIterations) -> None:
        self._clock = clock
        self.loop_iterations = iterations
        iterations.add(self._run)
        self._queues: tuple[deque[Callable[[], object]], ...] = tuple(deque() for _ in Rank)
        self._granted = False
        self._begun: float | None = None
        """When requests of this loop iteration began to be timed, on the monotonic clock."""
        self.sending = SendBudget(iterations)
        self.left = FREE
        """Units of work until `is_over` must be called; connections subtract theirs."""
        self.share = SHARE
        """Produce and Fetch requests that one callback may handle now."""
        self.waiting = 0
        """Number of waiting connections."""

    def is_over(self) -> bool:
        """Return whether this loop iteration has taken `PART_S` seconds, once nothing is `left`.

        The first call in a loop iteration starts the clock.
        """
        # A connection that is resumed has its turn even if the clock says otherwise, so that each
        # queue makes progress in every loop iteration.
        if self._granted:
            return False
        if self._begun is None:
            self._begun = self._clock.monotonic()
            self.loop_iterations.want()
            return False
        return self._clock.monotonic() - self._begun >= PART_S

    def may_begin(self) -> bool:
        """Return whether a request that is neither Produce nor Fetch may begin in this loop
        iteration."""
        self.left = 0  # later requests of this loop iteration are timed
        return not self.is_over()

    def wait(self, resume: Callable[[], object], rank: Rank) -> None:
        """Call `resume` in a later loop iteration; it may then begin one request, or its share."""
        self._queues[rank].append(resume)
        self.waiting += 1
        self._set_share()
        self.loop_iterations.want()

    def _set_share(self) -> None:
        self.share = min(SHARE, _TOGETHER // (1 + self.waiting)) or 1

    def _run(self) -> None:
        """Begin a loop iteration: resume waiting connections before the loop reads any socket."""
        self.left = FREE
        self._begun = None
        if not self.waiting:
            return
        # The clock starts with the waiting connections, so they and the sockets share one loop
        # iteration.
        self._begun = self._clock.monotonic()
        try:
            for queue in self._queues:
                self.loop_iterations.run_some(len(queue), partial(self._resume_next, queue))
        finally:
            self._granted = False
            self._set_share()
            if self.waiting:
                self.loop_iterations.want()
            else:
                self._begun = None

    def _resume_next(self, queue: deque[Callable[[], object]]) -> bool:
        # Granted before the call: the connection asks `is_over` itself.
        self._granted = True
        self.waiting -= 1
        queue.popleft()()
        return True
