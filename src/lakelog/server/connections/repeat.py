"""What a connection asked last, as far as a request that asks the same need not be decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lakelog.protocol.registry import Api


class Asked(Protocol):
    """What a request said of itself, beside its API."""

    @property
    def version(self) -> int: ...

    @property
    def client_id(self) -> str: ...


class Repeat(Protocol):
    """What a connection asked last, to be known again (see `lakelog.server.repeats`)."""

    api: Api
    note: Callable[[float], None]
    """Of the durations of the API's requests."""

    @property
    def key(self) -> Asked: ...

    def answer(self, view: memoryview, start: int, end: int, most: int) -> tuple[int, int]:
        """Answers the request in `view[start:end]` if it is that again, and up to `most` in all of
        those that follow in `view` and are that too.

        How many it has answered, and where the last one ends. If none, and it ends beyond `start`,
        the one request is answered later: it has its place among the replies of the connection, and
        is noted when it is complete.
        """
        ...
