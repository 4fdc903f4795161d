"""The place of a response in the order of its connection, and what a response is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from lakelog.runtime.api import Buffer
from lakelog.storage.segments.handles import LogSlice
from lakelog.wire.schema import Struct

if TYPE_CHECKING:
    from lakelog.protocol.registry import Api
    from lakelog.server.connections.connection import Connection
    from lakelog.server.requests.metrics import Asked

Part = Buffer | LogSlice


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


class Reply:
    """The place of one response in the order of its connection's responses."""

    __slots__ = ("connection", "on_abandon", "on_complete", "parts", "pipelined")

    def __init__(self, connection: Connection, pipelined: bool) -> None:
        self.connection = connection
        self.pipelined = pipelined
        self.parts: list[Part] | None = None
        self.on_abandon: Callable[[], object] | None = None
        """Called if the connection closes before the reply is complete."""
        self.on_complete: Callable[[Any], object] | None = None
        """Called with this reply when it is complete."""

    def complete(self, parts: list[Part]) -> None:
        """`parts` may be empty: a request that is not answered."""
        assert self.parts is None
        self.parts = parts
        self.on_abandon = None
        if self.on_complete is not None:
            self.on_complete(self)
        self.connection.on_reply(self)


def slices_of(value: object) -> list[Part]:
    """The parts of segment files in a message, or in a list of messages."""
    if isinstance(value, LogSlice):
        return [value]
    within: Iterable[object] = ()
    if isinstance(value, Struct):
        within = (getattr(value, field.name) for field in value.__fields__)
    elif isinstance(value, list):
        within = value
    return [part for one in within for part in slices_of(one)]


def release(parts: list[Part] | None) -> None:
    for part in parts or ():
        if isinstance(part, LogSlice):
            part.release()
