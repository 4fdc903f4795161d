"""Threads that block on the locks of other brokers and so detect the death of a process at once.

The kernel releases the lock of a process that dies. Stopped processes, which keep their locks, and
new brokers are detected by the poller (`embedded.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from lakelog.metadata.store.liveness import Neighbourhood


class DeathWatch:
    """One thread for each watched broker.

    A thread that blocks on a lock cannot be interrupted. After `close` each thread therefore
    remains until its broker or this process ends, and reports nothing; it is a daemon thread, so
    that it does not delay the end of the process.
    """

    def __init__(self, neighbourhood: Neighbourhood, on_death: Callable[[], None]) -> None:
        """`on_death` is called in one of the threads."""
        self._neighbourhood = neighbourhood
        self._on_death = on_death
        self._waiting: set[int] = set()
        self._mutex = threading.Lock()
        self._closed = False

    def follow(self, broker_ids: Iterable[int]) -> None:
        """Watch these brokers in addition to the watched ones."""
        with self._mutex:
            new = set(broker_ids) - self._waiting
            self._waiting |= new
        for broker_id in sorted(new):
            name = f"lakelog-broker-{broker_id}-watch"
            threading.Thread(target=self._wait, args=(broker_id,), name=name, daemon=True).start()

    def close(self) -> None:
        """Report no further death; the waiting threads remain until their broker ends."""
        with self._mutex:
            self._closed = True

    def _wait(self, broker_id: int) -> None:
        try:
            self._neighbourhood.wait_for_release(broker_id)
            is_dead = True
        except OSError:  # too many open files: the next turn of the poller starts a new thread
            is_dead = False
        with self._mutex:
            # Under the mutex: `follow` must start a new thread if the broker registers again.
            self._waiting.discard(broker_id)
            if is_dead and not self._closed:
                self._on_death()
