"""Replies of coordinators as futures, which the dispatcher awaits."""

from __future__ import annotations

from typing import Any, TypeVar

from lakelog.coordinator.shard import Reply
from lakelog.runtime.api import Tasks

T = TypeVar("T")


def settle(future: Any, response: object) -> None:
    """Complete the future with a response, unless the caller has cancelled it."""
    if future.done():
        assert future.cancelled(), "a caller is answered once"
    else:
        future.set_result(response)


def answered(tasks: Tasks, response: T) -> Reply[T]:
    """Return a completed reply."""
    future = tasks.future()
    future.set_result(response)
    return future
