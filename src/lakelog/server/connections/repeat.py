"""The last request of a connection, by which the next one is recognised without decoding it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lakelog.protocol.api import Api


class RequestHeader(Protocol):
    """The header of a request."""

    @property
    def version(self) -> int: ...

    @property
    def client_id(self) -> str: ...


class Repeat(Protocol):
    """The last request of a connection (see `lakelog.server.repeats`)."""

    api: Api
    note: Callable[[float], None]
    """Adds a duration in seconds to the API's histogram."""

    @property
    def key(self) -> RequestHeader: ...

    def answer(self, view: memoryview, start: int, end: int, most: int) -> tuple[int, int]:
        """Answer the request in `view[start:end]` if it repeats the last one.

        Requests behind it in `view` that repeat it too are answered with it, up to `most` in all.
        Return the number of answered requests, and the end of the last one in bytes (exclusive).
        (0, `start`) means that nothing was done. A negative number of requests is answered later:
        they have their place among the replies of the connection, and are counted when they are
        complete.
        """
        ...
