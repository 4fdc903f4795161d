"""A simulated process: what belongs to it, and how it ends at any moment.

Whatever a process runs carries it in its context: callbacks, timers and tasks inherit it, and the
loop drops those of a process that is dead. Nothing is cancelled, for a killed process does not
clean up after itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import Context, ContextVar, copy_context
from typing import Any

CURRENT: ContextVar[Process | None] = ContextVar("lakelog_simulated_process", default=None)

_TASKS_UNSWEPT = 64


class Process:
    """`host` names the machine; several processes may have lived on it, one after the other."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.alive = True
        self.sockets: list[Any] = []
        """Of `network.SimulatedSocket`, each to be cut off when this dies."""
        self._tasks: list[asyncio.Task[Any]] = []
        self._sweep_at = _TASKS_UNSWEPT
        self._context = copy_context()
        self._context.run(CURRENT.set, self)

    def context(self) -> Context:
        """For a callback that comes from outside of the process."""
        return self._context.copy()

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) > self._sweep_at:
            self._tasks = [entry for entry in self._tasks if not entry.done()]
            self._sweep_at = 2 * len(self._tasks) + _TASKS_UNSWEPT

    def kill(self) -> None:
        """Nothing of it runs from now on."""
        self.alive = False

    def close_coroutines(self) -> None:
        """Ends the coroutines that will never go on; to be called when none of them is running.

        They see `GeneratorExit`, so the disk must refuse them by now.
        """
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(Exception):
                    coroutine: Any = task.get_coro()
                    coroutine.close()
        self._tasks.clear()
