"""Requests of clients to a coordinator: values with a future, which the dispatcher awaits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.shard import Now, Reply, Result
from lakelog.runtime.api import Tasks

T = TypeVar("T")


@dataclass(slots=True, kw_only=True, eq=False)
class ClientRequest(ABC):
    """A request about one key, a group or a transactional id; see `shard.Request`.

    future: gets the response.
    """

    future: Any
    key: str

    allows_empty_key: ClassVar[bool] = False

    @abstractmethod
    def decide(self, shard: Any, now: Now) -> Result[Any]:
        """Return the decision, or its need. Raises `KafkaError`."""

    def answer(self, reply: Any) -> None:
        """Complete the future, unless the caller has cancelled it."""
        complete(self.future, reply)

    def refuse(self, code: ErrorCode) -> None:
        """Reply with an error code."""
        self.answer(code)


def complete(future: Any, response: object) -> None:
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
