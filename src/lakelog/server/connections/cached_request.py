"""The last request of a connection, by which the next one is recognised without decoding it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from lakelog.protocol.api import Api


class RepeatOutcome(Enum):
    """The result of comparing a request with the last one."""

    ANSWERED = auto()
    WAITING = auto()
    """The requests have their place among the replies of the connection, and are counted when they
    are complete."""
    DECODE = auto()
    """Nothing was done: the request differs, or no template covers its response."""


ANSWERED, WAITING, DECODE = RepeatOutcome
RepeatResult = tuple[RepeatOutcome, int, int]
"""The outcome, the number of handled requests, and the end of the last one in bytes (exclusive)."""
DECODED: RepeatResult = DECODE, 0, 0


class RequestHeader(Protocol):
    """The header of a request."""

    @property
    def version(self) -> int: ...

    @property
    def client_id(self) -> str: ...


class CachedRequest(Protocol):
    """The last request of a connection (see `lakelog.server.fast_path`)."""

    api: Api
    note: Callable[[float], None]
    """Adds a duration in seconds to the API's histogram."""

    @property
    def key(self) -> RequestHeader: ...

    def answer(self, view: memoryview, start: int, end: int, most: int) -> RepeatResult:
        """Answer the request in `view[start:end]` if it repeats the last one.

        Requests behind it in `view` that repeat it too are answered with it, up to `most` in all.
        """
        ...
