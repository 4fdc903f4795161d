"""Requests that wait, as data: Kafka's purgatory of delayed operations.

A request that cannot be answered yet (a fetch below its `min_bytes`, a produce that waits for a
flush) is parked here with a deadline and keys, for example its partitions. An event on a key has
the waits of the key tried again; at the deadline they expire. A wait is an object, not a suspended
coroutine: it can be counted and inspected, and is dropped with its connection.

A wait may be parked under several keys, and trying one may cause events that try it again. So each
wait is marked while it is tried and once it is done: it is answered exactly once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol

from lakelog.runtime.api import Clock, Tasks, Timer, Turns

_TRIED_MAX = 128
"""Largest number of waits that are tried, or expire, in one turn of the loop.

Required by `test_one_turn_tries_a_bounded_number_of_waits`."""


class Wait(Protocol):
    """A parked request. A `try_complete` that returns true, `expire` or `cancel` ends it, once.

    An exception of `try_complete` or `expire` is passed to `fail`, and does not affect other waits.
    """

    def try_complete(self) -> bool:
        """Answer the request if possible now; return whether it was answered."""
        ...

    def expire(self) -> None:
        """Answer with the results so far, because the deadline has passed."""
        ...

    def fail(self, error: Exception) -> None:
        """End the request after an unexpected exception, such as a bug or a lack of memory."""
        ...


class Parked:
    """A wait in the purgatory; the argument of `cancel`."""

    __slots__ = ("being_tried", "deadline", "done", "keys", "wait")

    def __init__(self, wait: Wait, keys: tuple[Hashable, ...], deadline: float) -> None:
        self.wait = wait
        self.keys = keys
        self.deadline = deadline
        self.done = False
        self.being_tried = False

    def __lt__(self, other: Parked) -> bool:
        return self.deadline < other.deadline


class Purgatory:
    """Waits by key and by deadline; those to try are a part of `turns`."""

    def __init__(self, clock: Clock, tasks: Tasks, turns: Turns) -> None:
        self._clock = clock
        self._tasks = tasks
        self._turns = turns
        turns.add(self._try_some)
        self._by_key: dict[Hashable, dict[Parked, None]] = {}
        self._deadlines: list[Parked] = []
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._count = 0
        self._to_try: dict[Parked, None] = {}

    def __len__(self) -> int:
        return self._count

    def park(self, wait: Wait, keys: Iterable[Hashable], deadline: float) -> Parked:
        """Park a wait until an event on one of `keys`, or until `deadline`.

        deadline: on the monotonic clock, in seconds; infinity for a wait without a deadline.
        """
        parked = Parked(wait, tuple(keys), deadline)
        for key in parked.keys:
            self._by_key.setdefault(key, {})[parked] = None
        heapq.heappush(self._deadlines, parked)
        self._count += 1
        self._arm()
        return parked

    def check(self, key: Hashable) -> None:
        """Try the waits of `key` now, after an event on it.

        An answered request may cause further events on the key before this call returns.
        """
        waiting = self._by_key.get(key)
        if waiting is None:
            return
        for parked in list(waiting):
            if not parked.done and not parked.being_tried and self._try(parked):
                self.cancel(parked)

    def check_soon(self, key: Hashable) -> None:
        """Try the waits of `key` in a later turn of the loop.

        The request that caused the event is answered first, and several events in one turn cost one
        try. A turn tries a bounded number of waits for a bounded time; later turns try the rest.
        """
        waiting = self._by_key.get(key)
        if waiting is not None:
            self._to_try.update(waiting)
            self._turns.want()

    def _try_some(self) -> None:
        to_try = self._to_try
        if not to_try:
            return
        try:
            some = list(islice(to_try, _TRIED_MAX))
            self._turns.run_some(len(some), partial(self._try_next, iter(some)))
        finally:
            if to_try:
                self._turns.want()

    def _try_next(self, some: Iterator[Parked]) -> bool:
        parked = next(some)
        del self._to_try[parked]
        if not parked.done and not parked.being_tried and self._try(parked):
            self.cancel(parked)
        return True

    def _try(self, parked: Parked) -> bool:
        parked.being_tried = True
        try:
            return parked.wait.try_complete()
        except Exception as error:  # noqa: BLE001 - passed to its request
            parked.wait.fail(error)
            return True
        finally:
            parked.being_tried = False

    def _expire(self, wait: Wait) -> None:
        try:
            wait.expire()
        except Exception as error:  # noqa: BLE001 - as above
            wait.fail(error)

    def cancel(self, parked: Parked) -> None:
        """Drop a wait without answering it; a wait that has ended is ignored."""
        if not parked.done:
            self._remove(parked)

    def _remove(self, parked: Parked) -> None:
        assert not parked.done, "a request is answered once"
        parked.done = True
        self._count -= 1
        for key in parked.keys:
            waiting = self._by_key[key]
            del waiting[parked]
            if not waiting:
                del self._by_key[key]
        # Removal from the middle of a heap is linear, so ended waits stay until most have ended.
        if len(self._deadlines) > 2 * self._count + 64:
            self._deadlines = [entry for entry in self._deadlines if not entry.done]
            heapq.heapify(self._deadlines)

    def _arm(self) -> None:
        while self._deadlines and self._deadlines[0].done:
            heapq.heappop(self._deadlines)
        if not self._deadlines:
            return
        due = self._deadlines[0].deadline
        if due == math.inf:
            return
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._tasks.call_later(max(0.0, due - self._clock.monotonic()), self._tick)

    def _tick(self) -> None:
        """Expire due waits; the timer rings for the others in the next turn."""
        self._timer = None
        try:
            self._turns.run_some(_TRIED_MAX, partial(self._expire_next, self._clock.monotonic()))
        finally:
            self._arm()

    def _expire_next(self, now: float) -> bool:
        parked = self._pop_due(now)
        if parked is None:
            return False
        self._remove(parked)
        self._expire(parked.wait)
        return True

    def _pop_due(self, now: float) -> Parked | None:
        """Remove and return the next due wait, or `None`; ended waits are skipped."""
        while self._deadlines and (self._deadlines[0].done or self._deadlines[0].deadline <= now):
            parked = heapq.heappop(self._deadlines)
            if not parked.done:
                return parked
        return None
