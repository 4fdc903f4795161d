"""Replies to callers, which wait for them as futures."""

from __future__ import annotations

from typing import Any, TypeVar

from lakelog.coordinator.shard import Reply
from lakelog.runtime.api import Tasks

T = TypeVar("T")


def settle(future: Any, response: object) -> None:
    """Answer a caller, unless it has gone away and has thereby cancelled its future."""
    if future.done():
        assert future.cancelled(), "a caller is answered once"
    else:
        future.set_result(response)


def answered(tasks: Tasks, response: T) -> Reply[T]:
    """Return a reply that is already there."""
    future = tasks.future()
    future.set_result(response)
    return future
