"""An event loop in virtual time: when no callback is ready, the clock jumps to the next timer.

With random numbers each callback takes a random moment of virtual time, so that timers and messages
meet in another order with another seed; without, callbacks take no time. Ready callbacks run in the
order of `call_soon`, as asyncio promises. The loop drops callbacks of dead processes (`process`).

It replaces the private `_run_once` of asyncio and has no selector: nothing outside can wake it.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, cast

from simulator.engine.process import CURRENT, Process

_CANCELLED_MAX = 50
_STEP_S_MAX = 0.000_1


class Stuck(Exception):  # noqa: N818 - an event
    """No callback is ready and no timer is set: nothing will ever happen."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """A loop that starts at time 0; `on_step` is called after each callback."""

    _ready: Any
    _scheduled: Any
    _timer_cancelled_count: int

    def __init__(self, rng: random.Random | None) -> None:
        super().__init__()
        self._now = 0.0
        self._random = _zero if rng is None else rng.random
        self.steps = 0
        self.on_step: Callable[[], None] = lambda: None
        self.set_task_factory(cast(Any, _new_task))

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if self._timer_cancelled_count > _CANCELLED_MAX:
            self._sweep()
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False
        if not ready:
            if not scheduled:
                raise Stuck
            # Time advances only when nothing is ready: virtual seconds cost nothing.
            self._now = max(self._now, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self._now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        # Callbacks that these schedule run in the next round, as in asyncio.
        for _ in range(len(ready)):
            self._run(ready.popleft())

    def _sweep(self) -> None:
        """Remove cancelled timers: most are timeouts, cancelled long before they are due."""
        for timer in self._scheduled:
            timer._scheduled = not timer._cancelled
        self._scheduled[:] = [timer for timer in self._scheduled if not timer._cancelled]
        heapq.heapify(self._scheduled)
        self._timer_cancelled_count = 0

    def _run(self, handle: Any) -> None:
        if handle._cancelled:
            return
        process = handle._context.get(CURRENT)
        # A killed process executes nothing more, not even its own cleanup.
        if process is not None:
            if not process.alive:
                return
            if process.held is not None:
                process.held.append(handle)
                return
        self.steps += 1
        # Ties between timers break differently with each seed.
        self._now += self._random() * _STEP_S_MAX
        handle._run()
        self.on_step()

    def resume(self, process: Process) -> None:
        """End the pause of a process: its callbacks run in their order."""
        self._ready.extend(process.resume())

    def _write_to_self(self) -> None:
        """There is no selector to wake."""


def _zero() -> float:
    return 0.0


def _new_task(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, Any],
    context: Context | None = None,
    **kwargs: Any,
) -> asyncio.Task[Any]:
    task = asyncio.Task(coro, loop=loop, context=context, **kwargs)
    # The task's own context decides: a start from outside of the process passes one.
    process = CURRENT.get() if context is None else context.get(CURRENT)
    if process is not None:
        process.adopt(task)
    return task
