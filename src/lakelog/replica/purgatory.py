"""Requests that wait, as data: Kafka's purgatory of delayed operations.

A request that cannot be answered yet (a fetch below its `min_bytes`, a produce that waits for a
flush) is parked here with a deadline and keys, for example its partitions. An event on a key has
the waits of the key tried again; at the deadline they expire. A wait is an object, not a suspended
coroutine: it can be counted and inspected, and is dropped with its connection.

A wait may be parked under several keys, and trying one may cause events that try it again. So each
wait is marked while it is tried and once it is done: it is answered exactly once.

Waits for an offset of one partition, such as acknowledgements, are parked in the order of their
offsets. An event tries them up to the first that is not answered, so it costs as much as it
answers.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Protocol

from lakelog.runtime.api import Clock, Iterations, Tasks, Timer

_TRIED_MAX = 128
"""Largest number of waits that are tried, or expire, in one iteration of the loop.

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


class Watcher(Protocol):
    """A fetch session that watches keys."""

    @property
    def parked(self) -> Parked | None:
        """The wait that an event tries."""
        ...

    def note_event(self, tag: Any) -> None:
        """Note the event; the key is not watched any more."""
        ...


class Parked:
    """A wait in the purgatory; the argument of `cancel`."""

    __slots__ = ("being_tried", "deadline", "done", "keys", "queue", "wait")

    def __init__(
        self,
        wait: Wait,
        keys: tuple[Hashable, ...],
        deadline: float,
        queue: Queue | None = None,
    ) -> None:
        self.wait = wait
        self.keys = keys
        self.deadline = deadline
        self.queue = queue
        """The queue of the wait, if it is parked by an offset and not under keys."""
        self.done = False
        self.being_tried = False

    def __lt__(self, other: Parked) -> bool:
        return self.deadline < other.deadline


class Queue:
    """The waits for offsets of one key, smallest offset first."""

    __slots__ = ("_ended", "_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Parked]] = []
        self._number = 0
        """Orders the waits for the same offset."""
        self._ended = 0
        """Waits in the heap that have ended."""

    def add(self, offset: int, parked: Parked) -> None:
        """Add a wait for an offset."""
        self._number += 1
        heapq.heappush(self._heap, (offset, self._number, parked))

    def first(self) -> Parked | None:
        """Return the wait for the smallest offset, or None."""
        heap = self._heap
        while heap and heap[0][2].done:
            heapq.heappop(heap)
            self._ended -= 1
        return heap[0][2] if heap else None

    def note_end(self) -> None:
        """Note that one of the waits has ended."""
        self._ended += 1
        # Removal from the middle of a heap is linear, so ended waits stay until most have ended.
        if 2 * self._ended > len(self._heap) + 16:
            self._heap = [entry for entry in self._heap if not entry[2].done]
            heapq.heapify(self._heap)
            self._ended = 0


class Purgatory:
    """Waits by key and by deadline; those to try are a part of `iterations`."""

    def __init__(self, clock: Clock, tasks: Tasks, iterations: Iterations) -> None:
        self._clock = clock
        self._tasks = tasks
        self._iterations = iterations
        iterations.add(self._try_some)
        self._by_key: dict[Hashable, dict[Parked, None]] = {}
        self._deadlines: list[Parked] = []
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._count = 0
        self._to_try: dict[Parked, None] = {}
        self._queues: dict[Hashable, Queue] = {}
        self._queues_to_try: dict[Hashable, None] = {}
        self._watchers: dict[Hashable, dict[Watcher, Any]] = {}

    def __len__(self) -> int:
        return self._count

    def park(self, wait: Wait, keys: Iterable[Hashable], deadline: float) -> Parked:
        """Park a wait until an event on one of `keys`, or until `deadline`.

        deadline: on the monotonic clock, in seconds; infinity for a wait without a deadline.
        """
        parked = Parked(wait, tuple(keys), deadline)
        for key in parked.keys:
            self._by_key.setdefault(key, {})[parked] = None
        self._count_in(parked)
        return parked

    def park_by_offset(self, wait: Wait, key: Hashable, offset: int, deadline: float) -> Parked:
        """Park a wait that can be answered no earlier than the waits of `key` for lower offsets.

        An event tries it after those. The deadline is that of `park`.
        """
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue()
        parked = Parked(wait, (), deadline, queue)
        queue.add(offset, parked)
        self._count_in(parked)
        return parked

    def watch(self, key: Hashable, watcher: Watcher, tag: Any) -> None:
        """Report the next event on `key` with `tag`, once."""
        self._watchers.setdefault(key, {})[watcher] = tag

    def unwatch(self, key: Hashable, watcher: Watcher) -> None:
        """Do not report the next event on `key`."""
        watchers = self._watchers[key]
        del watchers[watcher]
        if not watchers:
            del self._watchers[key]

    def _report(self, key: Hashable) -> list[Parked]:
        """Report an event; return the waits that it may have answered."""
        waits = []
        # Once per event: the session looks at the partition in its next request, and watches it
        # again if that finds nothing.
        for watcher, tag in self._watchers.pop(key).items():
            watcher.note_event(tag)
            if watcher.parked is not None:
                waits.append(watcher.parked)
        return waits

    def _count_in(self, parked: Parked) -> None:
        heapq.heappush(self._deadlines, parked)
        self._count += 1
        self._arm()

    def check(self, key: Hashable) -> None:
        """Try the waits of `key` now, after an event on it.

        An answered request may cause further events on the key before this call returns.
        """
        if key in self._queues:
            while self._try_first(key):
                pass
        # A copy: an answered request may park or end other waits of this key.
        waiting = list(self._by_key.get(key, ()))
        if key in self._watchers:
            waiting += self._report(key)
        for parked in waiting:
            if not parked.done and not parked.being_tried and self._try(parked):
                self.cancel(parked)

    def check_soon(self, key: Hashable) -> None:
        """Try the waits of `key` in a later iteration of the loop.

        The request that caused the event is answered first, and several events in one loop
        iteration cost one try. A loop iteration tries a bounded number of waits for a bounded time;
        later loop iterations try the rest.
        """
        waiting = self._by_key.get(key)
        if waiting is not None:
            self._to_try.update(waiting)
            self._iterations.want()
        if key in self._queues:
            self._queues_to_try[key] = None
            self._iterations.want()
        if key in self._watchers:
            self._to_try.update(dict.fromkeys(self._report(key)))
            self._iterations.want()

    def _try_some(self) -> None:
        to_try, queues = self._to_try, self._queues_to_try
        if not to_try and not queues:
            return
        try:
            if to_try:
                some = list(islice(to_try, _TRIED_MAX))
                self._iterations.run_some(len(some), partial(self._try_next, iter(some)))
            if queues:
                self._iterations.run_some(_TRIED_MAX, self._try_in_queue)
        finally:
            if to_try or queues:
                self._iterations.want()

    def _try_in_queue(self) -> bool:
        """Try one wait by its offset; return whether another one may be due."""
        key = next(iter(self._queues_to_try), None)
        if key is None:
            return False
        if not self._try_first(key):
            self._queues_to_try.pop(key, None)
        return True

    def _try_first(self, key: Hashable) -> bool:
        """Try the first wait of a queue; return whether it was answered."""
        queue = self._queues.get(key)
        if queue is None:
            return False
        parked = queue.first()
        if parked is None:
            del self._queues[key]
            return False
        # The first that cannot be answered ends the search: no later offset is reached either.
        if parked.being_tried or not self._try(parked):
            return False
        self.cancel(parked)
        return True

    def _try_next(self, some: Iterator[Parked]) -> bool:
        parked = next(some)
        # Before it is tried: an event that the try causes must schedule it again.
        del self._to_try[parked]
        if not parked.done and not parked.being_tried and self._try(parked):
            self.cancel(parked)
        return True

    def _try(self, parked: Parked) -> bool:
        # Trying a fetch may answer a produce request, whose event leads here again for the same
        # wait.
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
        if parked.queue is not None:
            parked.queue.note_end()
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
            # A timer that rings early only arms itself again; most deadlines are later than the
            # next one, so most parks cost no timer.
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._tasks.call_later(max(0.0, due - self._clock.monotonic()), self._tick)

    def _tick(self) -> None:
        """Expire due waits; the timer rings for the others in the next loop iteration."""
        self._timer = None
        try:
            self._iterations.run_some(
                _TRIED_MAX, partial(self._expire_next, self._clock.monotonic())
            )
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
