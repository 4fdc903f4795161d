"""A thread that makes calls for an event loop, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Result = TypeVar("_Result")


class CallThread:
    """One thread, started at the first call. `name` is that of the thread."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._is_finished = False

    def submit(self, call: Callable[[], _Result]) -> asyncio.Future[_Result]:
        """Return the future result of `call`, which runs after all calls before it."""
        return asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def run(self, call: Callable[[], _Result]) -> _Result:
        """Return the result of `call`, or raise its error.

        The call is made also if the task is cancelled meanwhile.
        """
        return await asyncio.shield(self.submit(call))

    async def finish(self, call: Callable[[], object]) -> None:
        """Make a last call, and end the thread; later times have no effect.

        Raises the error of `call`.
        """
        if self._is_finished:
            return
        self._is_finished = True
        try:
            await self.run(call)
        finally:
            self.close()

    def close(self) -> None:
        """End the thread after the calls that were submitted."""
        self._executor.shutdown(wait=False)
