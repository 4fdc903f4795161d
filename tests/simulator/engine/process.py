"""A simulated process, which can be killed or paused between any two callbacks.

Callbacks, timers and tasks of a process carry it in their context, and inherit it. The loop drops
them if the process is dead. Nothing is cancelled: a killed process does not clean up after itself.
While a process is paused, as by SIGSTOP, its callbacks wait, and timers become due late.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import Context, ContextVar, copy_context
from typing import Any

CURRENT: ContextVar[Process | None] = ContextVar("lakelog_simulated_process", default=None)

_TASKS_UNSWEPT = 64


class Process:
    """A process on the machine `host`, which may run several processes one after the other."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.alive = True
        self.held: list[Any] | None = None
        """Callbacks that wait because the process is paused; None while it runs."""
        self.paused_at = 0.0
        """The loop's time of the last pause, in seconds."""
        self.sockets: list[Any] = []
        """The open `network.sockets.SimulatedSocket`s."""
        self._tasks: list[asyncio.Task[Any]] = []
        self._sweep_at = _TASKS_UNSWEPT
        self._context = copy_context()
        self._context.run(CURRENT.set, self)

    def context(self) -> Context:
        """Return a context for a callback that is scheduled from outside of the process."""
        return self._context.copy()

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Keep a task for `close_coroutines`; finished tasks are dropped now and then."""
        self._tasks.append(task)
        if len(self._tasks) > self._sweep_at:
            self._tasks = [entry for entry in self._tasks if not entry.done()]
            # Doubling keeps the cost of all sweeps linear in the number of tasks.
            self._sweep_at = 2 * len(self._tasks) + _TASKS_UNSWEPT

    @property
    def is_paused(self) -> bool:
        return self.held is not None

    def pause(self, now: float) -> None:
        """Hold all callbacks from now on, the time of the loop; nothing if it is paused already."""
        if self.held is None:
            self.held, self.paused_at = [], now

    def resume(self) -> list[Any]:
        """End the pause; return the callbacks that waited, in their order."""
        held, self.held = self.held or [], None
        return held

    def kill(self) -> None:
        """Mark the process as dead: the loop no longer runs its callbacks."""
        self.alive = False

    def close_coroutines(self) -> None:
        """Close the coroutines of a dead process, which must not be running.

        They see `GeneratorExit` and run their `finally` blocks: the disk must reject them by now.
        """
        assert not self.alive
        for task in self._tasks:
            if not task.done():
                # A task that never finishes is intended here; asyncio would log it as a bug.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(Exception):
                    coroutine: Any = task.get_coro()
                    coroutine.close()
        self._tasks.clear()
