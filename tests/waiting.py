"""The one way in which tests wait: for an event, with patience, and its name in the failure.

`eventually` waits in a thread and `until` in a coroutine, where the loop may have virtual time. The
event is described by `what`, or else by the source text of the condition. A deadline only ends a
broken run, so it suits a machine that is much slower than yours. A caller that can continue
without the event suppresses `EventTimeoutError`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import sys
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Generic, TypeVar, overload

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long a test waits for an event that must come."""
_POLL_S = 0.02
_SHOWN_MAX = 2_000

What = str | Callable[[], str]
Passing = Callable[[Exception], bool]


class EventTimeoutError(AssertionError):
    """The event did not come in time; the text names it and the last value or error."""


class _Looks(Generic[T]):
    """Looks for one event: the condition, and the last value or passing exception."""

    def __init__(self, timeout_s: float, what: What, passing: Passing | None) -> None:
        self._timeout_s = timeout_s
        self._what = what
        self._passing = passing
        self._value: T | None = None
        self.error: Exception | None = None

    def look(self, condition: Callable[[], T | None]) -> T | None:
        try:
            self._value, self.error = condition(), None
        except Exception as error:
            if not self._passes(error):
                raise
            self._value, self.error = None, error
        return self._value

    async def look_async(self, condition: Callable[[], object]) -> T | None:
        try:
            value = condition()
            self._value = await value if inspect.isawaitable(value) else value  # type: ignore[assignment]
            self.error = None
        except Exception as error:
            if not self._passes(error):
                raise
            self._value, self.error = None, error
        return self._value

    def _passes(self, error: Exception) -> bool:
        return self._passing is not None and self._passing(error)

    def failure(self, caller: FrameType) -> EventTimeoutError:
        what = self._what() if callable(self._what) else self._what
        last = self._value if self.error is None else self.error
        return EventTimeoutError(
            f"waited {self._timeout_s:g} s for: {what or _condition_text(caller)}; "
            f"the last look found {repr(last)[:_SHOWN_MAX]}"
        )


def eventually(
    condition: Callable[[], T | None],
    timeout_s: float = PATIENCE_S,
    what: What = "",
    *,
    passing: Passing | None = None,
    every_s: float = _POLL_S,
) -> T:
    """Call `condition()` every `every_s` seconds until it is true, and return its value.

    Args:
        what: the event, where the source text of the condition would not name it.
        passing: whether an exception of the condition means "not yet"; any other ends the wait.

    Raises:
        EventTimeoutError: after `timeout_s` seconds and one more look.
    """
    looks = _Looks[T](timeout_s, what, passing)
    deadline = time.monotonic() + timeout_s
    while not (value := looks.look(condition)):
        if time.monotonic() >= deadline:
            raise looks.failure(sys._getframe(1)) from looks.error
        time.sleep(every_s)
    return value


@overload
async def until(
    condition: Callable[[], Awaitable[T | None]],
    timeout_s: float = PATIENCE_S,
    what: What = "",
    *,
    passing: Passing | None = None,
    every_s: float = _POLL_S,
) -> T: ...
@overload
async def until(
    condition: Callable[[], T | None],
    timeout_s: float = PATIENCE_S,
    what: What = "",
    *,
    passing: Passing | None = None,
    every_s: float = _POLL_S,
) -> T: ...
async def until(
    condition: Callable[[], object],
    timeout_s: float = PATIENCE_S,
    what: What = "",
    *,
    passing: Passing | None = None,
    every_s: float = _POLL_S,
) -> object:
    """Wait as `eventually` does, in a coroutine and by the clock of its loop.

    With `every_s=0` it looks once in each iteration of the loop.
    """
    looks = _Looks[object](timeout_s, what, passing)
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    while not (value := await looks.look_async(condition)):
        if clock() >= deadline:
            raise looks.failure(sys._getframe(1)) from looks.error
        await asyncio.sleep(every_s)
    return value


def _condition_text(caller: FrameType) -> str:
    """Return the source of the first argument of the call that `caller` is in, on one line."""
    positions = inspect.getframeinfo(caller, context=0).positions
    if positions is None or None in positions:
        return "an event of unknown source"
    lines = linecache.getlines(caller.f_code.co_filename)
    first, last, begin, end = (position or 0 for position in positions)
    text = "".join(lines[first - 1 : last]).encode()
    text = text[begin : len(text) - len(lines[last - 1].encode()) + end] if lines else b""
    return _condition_of(text.decode()) or "an event of unknown source"


def _condition_of(call: str) -> str:
    """Return the first argument of a call, and of a `lambda` its body."""
    tree = ast.parse(call.removeprefix("await ") or "''", mode="eval").body
    if not isinstance(tree, ast.Call) or not tree.args:
        return call
    condition = tree.args[0]
    return ast.unparse(condition.body if isinstance(condition, ast.Lambda) else condition)
