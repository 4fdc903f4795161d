"""Long waits as data.

A request that cannot be answered yet (a fetch below its `min_bytes`, a produce waiting for the
device) is parked here with a deadline and the keys of what it waits for. When something happens
to a key its waits are tried again; at the deadline they expire. A wait is an object, not a
suspended coroutine: it can be counted, inspected, and dropped when its connection goes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Protocol

from lakelog.runtime.api import Clock, Tasks, Timer

_TRIED_MAX = 128
_TURN_S = 0.002
"""Waits tried, or expired, in one turn of the loop, and the seconds after which no other begins."""


class Wait(Protocol):
    """What is parked. Exactly one of a true `try_complete`, `expire` or `cancel` ends it.

    What the first two raise is handed to `fail`, and concerns nobody else who waits.
    """

    def try_complete(self) -> bool:
        """Answers and returns true if it can be answered now."""
        ...

    def expire(self) -> None:
        """Answers with what there is: the deadline has passed."""
        ...

    def fail(self, error: Exception) -> None:
        """It could not be tried, for a bug or for want of memory: ends it."""
        ...


class Parked:
    """A wait in the purgatory, to be handed to `cancel`."""

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
    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._by_key: dict[Hashable, dict[Parked, None]] = {}
        self._deadlines: list[Parked] = []
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._count = 0
        self._to_try: dict[Parked, None] = {}
        self._trying_soon = False

    def __len__(self) -> int:
        return self._count

    def park(self, wait: Wait, keys: Iterable[Hashable], deadline: float) -> Parked:
        """`deadline` is on the monotonic clock, in seconds; infinity for a wait without one."""
        parked = Parked(wait, tuple(keys), deadline)
        for key in parked.keys:
            self._by_key.setdefault(key, {})[parked] = None
        heapq.heappush(self._deadlines, parked)
        self._count += 1
        self._arm()
        return parked

    def check(self, key: Hashable) -> None:
        """Something happened to `key`: answers the waits that can be answered now.

        Whoever is answered may make something happen to the key again, before this returns.
        """
        waiting = self._by_key.get(key)
        if waiting is None:
            return
        for parked in list(waiting):
            if not parked.done and not parked.being_tried and self._try(parked):
                self.cancel(parked)

    def check_soon(self, key: Hashable) -> None:
        """As `check`, after what the loop is at: whoever has made something happen is answered
        first, and what happens to a key several times is looked at once.

        Of many waits, or some that take long, only some are tried in one turn of the loop.
        """
        waiting = self._by_key.get(key)
        if waiting is not None:
            self._to_try.update(waiting)
            self._try_soon()

    def _try_soon(self) -> None:
        if not self._trying_soon:
            self._trying_soon = True
            self._tasks.call_soon(self._try_some)

    def _try_some(self) -> None:
        self._trying_soon = False
        to_try = self._to_try
        until = self._clock.monotonic() + _TURN_S if len(to_try) > 1 else math.inf
        try:
            for parked in list(islice(to_try, _TRIED_MAX)):
                del to_try[parked]
                if not parked.done and not parked.being_tried and self._try(parked):
                    self.cancel(parked)
                if to_try and self._clock.monotonic() >= until:
                    break
        finally:
            if to_try:
                self._try_soon()

    def _try(self, parked: Parked) -> bool:
        parked.being_tried = True
        try:
            return parked.wait.try_complete()
        except Exception as error:  # noqa: BLE001 - it is told to whom it concerns
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
        """Drops a wait without answering it; nothing happens if it has ended."""
        if not parked.done:
            self._remove(parked)

    def _remove(self, parked: Parked) -> None:
        parked.done = True
        self._count -= 1
        for key in parked.keys:
            waiting = self._by_key[key]
            del waiting[parked]
            if not waiting:
                del self._by_key[key]
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
        """Expires what is due; the timer of the rest rings in the next turn."""
        self._timer = None
        now = self._clock.monotonic()
        expired = 0
        try:
            while expired < _TRIED_MAX and (parked := self._pop_due(now)):
                expired += 1
                self._remove(parked)
                self._expire(parked.wait)
                if self._clock.monotonic() >= now + _TURN_S:
                    break
        finally:
            self._arm()

    def _pop_due(self, now: float) -> Parked | None:
        """Return the next wait whose deadline has passed, without those that have ended."""
        while self._deadlines and (self._deadlines[0].done or self._deadlines[0].deadline <= now):
            parked = heapq.heappop(self._deadlines)
            if not parked.done:
                return parked
        return None
