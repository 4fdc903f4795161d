"""Threads that wait for the locks of other brokers, and so notice the death of a process at once.

The kernel releases the lock of a broker that dies. A thread that blocks on this lock needs no
polling; but it neither notices a stopped process, which keeps its lock, nor a new broker. Both are
the poller's business (`embedded.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from lakelog.metadata.store.liveness import Neighbourhood


class DeathWatch:
    """One thread for each broker that is waited for.

    Nothing interrupts a thread that blocks on a lock. These are daemon threads therefore: after
    `close` each stays until its broker or this process ends, and reports nothing.
    """

    def __init__(self, neighbourhood: Neighbourhood, on_death: Callable[[], None]) -> None:
        """`on_death` is called in a thread of its own."""
        self._neighbourhood = neighbourhood
        self._on_death = on_death
        self._waiting: set[int] = set()
        self._mutex = threading.Lock()
        self._closed = False

    def follow(self, broker_ids: Iterable[int]) -> None:
        """Wait for the death of these brokers, besides those that are waited for already."""
        with self._mutex:
            new = set(broker_ids) - self._waiting
            self._waiting |= new
        for broker_id in sorted(new):
            name = f"lakelog-broker-{broker_id}-watch"
            threading.Thread(target=self._wait, args=(broker_id,), name=name, daemon=True).start()

    def close(self) -> None:
        with self._mutex:
            self._closed = True

    def _wait(self, broker_id: int) -> None:
        try:
            self._neighbourhood.wait_for_release(broker_id)
            is_dead = True
        except OSError:  # too many open files: the poller sees the death, and has us follow again
            is_dead = False
        with self._mutex:
            self._waiting.discard(broker_id)
            if is_dead and not self._closed:
                self._on_death()
