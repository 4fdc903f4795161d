"""The place of a response in the order of its connection, and the parts of a response."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from lakelog.runtime.api import Buffer
from lakelog.storage.segments.handles import LogSlice
from lakelog.wire.schema import Struct

Part = Buffer | LogSlice


class ReplyOrder(Protocol):
    """A connection, which sends its replies in the order of the requests."""

    closed: bool

    def on_reply(self, reply: Reply) -> None:
        """Send `reply`, which is complete, after the replies to earlier requests."""
        ...


class Reply:
    """The place of one response in the order of its connection's responses."""

    __slots__ = ("connection", "on_abandon", "on_complete", "parts", "pipelined")

    def __init__(self, connection: ReplyOrder, pipelined: bool) -> None:
        self.connection = connection
        self.pipelined = pipelined
        self.parts: list[Part] | None = None
        self.on_abandon: Callable[[], object] | None = None
        """Called if the connection closes before the reply is complete."""
        self.on_complete: Callable[[Any], object] | None = None
        """Called with this reply when it is complete."""

    def complete(self, parts: list[Part]) -> None:
        """Complete the reply with `parts`, empty for a request that has no response.

        The connection then owns the ranges of files in `parts`, and releases each once.
        """
        assert self.parts is None
        self.parts = parts
        # A complete reply cannot be abandoned any more: the connection may close in `on_reply`.
        self.on_abandon = None
        if self.on_complete is not None:
            self.on_complete(self)
        self.connection.on_reply(self)


def slices_of(value: object) -> list[Part]:
    """Return the ranges of segment files in a message, or in a list of messages."""
    if isinstance(value, LogSlice):
        return [value]
    within: Iterable[object] = ()
    if isinstance(value, Struct):
        within = (getattr(value, field.name) for field in value.__fields__)
    elif isinstance(value, list):
        within = value
    return [part for one in within for part in slices_of(one)]


def release(parts: list[Part] | None) -> None:
    """Release the ranges of segment files, whose files may have been deleted meanwhile."""
    for part in parts or ():
        if isinstance(part, LogSlice):
            part.release()
