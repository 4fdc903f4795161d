"""What a connection hands its requests to, and how it is told that one has no answer."""

from __future__ import annotations

from typing import Protocol, TypeVar

C = TypeVar("C", contravariant=True)


class ProtocolViolation(Exception):  # noqa: N818 - it is the peer's, and ends the connection
    """The peer sent what no answer exists for; the connection is closed."""


class RequestSink(Protocol[C]):
    """What a connection, a `C`, hands its requests to."""

    def is_pipelined(self, api_key: int) -> bool:
        """Whether such a request may start while earlier ones of its kind wait."""
        ...

    def on_request(
        self, connection: C, view: memoryview, start: int, end: int, most: int
    ) -> tuple[int, int]:
        """Handles the request in `view[start:end]` before returning, or keeps a copy.

        It may go on with what follows in `view`, up to `most` requests. Returns how many it has
        taken, and where the last one ends. Raises `ProtocolViolation` if the connection is to be
        closed.
        """
        ...

    def on_violation(self, connection: C, violation: ProtocolViolation) -> None:
        """Closes the connection and says why."""
        ...

    def on_failure(self, connection: C, what: str, error: Exception) -> None:
        """Closes a connection for a bug or for want of memory, and says what has failed."""
        ...

    def on_unread(self, connection: C, size: int) -> None:
        """Its responses that could not be sent take `size` bytes; nothing is said of the rest."""
        ...

    def on_close(self, connection: C) -> None: ...
