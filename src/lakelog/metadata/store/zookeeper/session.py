"""The part of ZooKeeper that the store uses; every result arrives on the event loop.

All writes are transactions of one or more operations, carried out whole or not at all. Requests of
one session are carried out in order, and a read sees at least the writes of its session. Writes
that may be repeated, and the barrier before a read that must be current, are functions here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple, Protocol

from lakelog.metadata.errors import MetadataCorrupt, MetadataUnavailable


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


class ZooKeeperSession(Protocol):
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


_PIPELINED_MAX = 32
"""Entries or chunks that are requested at a time; each may have 900 kB."""


async def write_repeatable(session: ZooKeeperSession, *operations: Operation) -> Refusal | None:
    """Carry out operations that the caller repeats after `Disconnected`."""
    try:
        return await session.write(*operations)
    except OutcomeUnknown as error:
        raise Disconnected(str(error)) from error


async def pass_barrier(session: ZooKeeperSession, path: str) -> None:
    """Return when later reads of this session see all writes that were done before the call.

    A write is a quorum operation, which `sync` is not (ZOOKEEPER-1675). Raises `Disconnected`.
    """
    if await write_repeatable(session, Put(path, b"")) is not None:
        raise _wiped(path)


async def get_required(
    session: ZooKeeperSession, path: str, on_change: Notify | None = None
) -> Node:
    """Return a node that every log has. Raises `MetadataCorrupt` and `Disconnected`."""
    node = await session.get(path, on_change)
    if node is None:
        raise _wiped(path)
    return node


def _wiped(path: str) -> MetadataCorrupt:
    return MetadataCorrupt(
        f"{path} is missing in ZooKeeper: the ensemble was wiped or replaced; check --metadata or "
        "restore the newest state of the ensemble"
    )


async def get_all(session: ZooKeeperSession, paths: Iterable[str]) -> list[Node | None]:
    """Return the nodes, pipelined. Raises `Disconnected`."""
    all_paths, nodes = list(paths), list[Node | None]()
    for start in range(0, len(all_paths), _PIPELINED_MAX):
        some = all_paths[start : start + _PIPELINED_MAX]
        nodes += await asyncio.gather(*(session.get(path) for path in some))
    return nodes
