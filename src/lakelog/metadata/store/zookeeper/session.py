"""The part of ZooKeeper that the store uses; every result arrives on the event loop.

All writes are transactions of one or more operations, carried out whole or not at all. Requests of
one session are carried out in order, and a read sees at least the writes of its session.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple, Protocol

from lakelog.metadata.errors import MetadataUnavailable


class Node(NamedTuple):
    """Data of a node; `owner` is the session that an ephemeral node ends with, else 0."""

    data: bytes
    version: int
    owner: int


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False


class Put(NamedTuple):
    """Replace the data of a node at this version; -1 is any version."""

    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    path: str


class Check(NamedTuple):
    """Require this version of a node."""

    path: str
    version: int


Operation = Create | Put | Delete | Check


class Reason(Enum):
    """Why a transaction was not carried out."""

    EXISTS = auto()
    MISSING = auto()
    VERSION = auto()
    OTHER = auto()


class Refusal(NamedTuple):
    """The first operation that could not be carried out."""

    operation: int
    reason: Reason


class Disconnected(MetadataUnavailable):
    """A read had no answer on the connection that it began with."""


class OutcomeUnknown(Exception):  # noqa: N818
    """The connection was lost during a write, which may be carried out now, later or never."""


Notify = Callable[[], None]


class Session(Protocol):
    """One client of an ensemble. An expired session is replaced by a new one."""

    @property
    def session_id(self) -> int: ...

    async def open(self, on_connection: Notify) -> None:
        """Connect; call `on_connection` after each loss of a connection and each new one.

        Raises `MetadataUnavailable` if no server answers.
        """
        ...

    async def get(self, path: str, on_change: Notify | None = None) -> Node | None:
        """Return the node if it exists. Raises `Disconnected`.

        `on_change` is called after the next change of an existing node, unless the connection is
        lost first.
        """
        ...

    async def children(self, path: str, on_change: Notify | None = None) -> list[str] | None:
        """Return the names of the children, like `get`. Raises `Disconnected`."""
        ...

    async def write(self, *operations: Operation) -> Refusal | None:
        """Carry out all operations or none. Raises `OutcomeUnknown`."""
        ...

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes."""
        ...
