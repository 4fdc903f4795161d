"""Requests of clients to a coordinator: values with a future, which the dispatcher awaits."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from lakelog.base.errors import ErrorCode
from lakelog.base.events import event
from lakelog.coordinator.shard import Now, Reply, Result
from lakelog.runtime.api import Tasks

logger = logging.getLogger(__name__)

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

    def refuse_bug(self, step: str, **fields: Any) -> None:
        """Log the exception that is being handled, and refuse the request if it is still open."""
        log_bug(step, self.key, **fields)
        if not self.future.done():
            self.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)


def log_bug(step: str, subject: str, **fields: Any) -> None:
    """Log the exception that is being handled; no code expects it.

    Args:
        step: the failed work, as a participle.
        subject: a partition, a group or a transactional id.
        fields: of the event.
    """
    logger.exception(
        "unexpected error while %s for %s",
        step,
        subject,
        extra=event("coordinator_failed", **fields),
    )


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
