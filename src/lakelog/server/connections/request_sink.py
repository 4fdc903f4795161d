"""The receiver of a connection's requests, the error of a request that has no answer, and the last
request, by which the next one is recognised without decoding it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol, TypeVar

from lakelog.protocol.api import Api
from lakelog.runtime.api import File
from lakelog.server.connections.reply import Reply

C = TypeVar("C", contravariant=True)


class ProtocolViolation(Exception):  # noqa: N818 - the peer's error, not the broker's
    """The peer sent bytes for which the protocol has no response; the connection is closed."""


class RequestSink(Protocol[C]):
    """The receiver of the requests of a connection, a `C`."""

    def is_pipelined(self, api_key: int) -> bool:
        """Return whether such a request may start while earlier ones of its API wait."""
        ...

    def on_request(
        self, connection: C, view: memoryview, start: int, end: int, most: int
    ) -> tuple[int, int]:
        """Handle the request in `view[start:end]`, or keep a copy of it.

        It may handle requests behind it in `view` as well, up to `most` in all. Return their
        number and the end of the last one, in bytes (exclusive). Raises `ProtocolViolation` if the
        connection is to be closed.
        """
        ...

    def on_violation(self, connection: C, violation: ProtocolViolation) -> None:
        """Close the connection and log why."""
        ...

    def on_failure(self, connection: C, what: str, error: Exception) -> None:
        """Close a connection because `what` has failed by a bug or a lack of memory."""
        ...

    def on_unreadable(self, file: File, error: OSError) -> None:
        """Have the log fail to which a file belongs that could not be read for a response."""
        ...

    def on_close(self, connection: C, abandoned: list[Reply]) -> None:
        """Forget a closed connection; the replies in `abandoned` will never be completed."""
        ...


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
