"""Requests that may be repeated, and the barrier before a read that must be current."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from lakelog.metadata.errors import MetadataCorrupt
from lakelog.metadata.store.zookeeper.session import (
    Disconnected,
    Node,
    Notify,
    Operation,
    OutcomeUnknown,
    Put,
    Refusal,
    Session,
)

_PIPELINED_MAX = 32
"""Entries or chunks that are requested at a time; each may have 900 kB."""


async def write_repeatable(session: Session, *operations: Operation) -> Refusal | None:
    """Carry out operations that the caller repeats after `Disconnected`."""
    try:
        return await session.write(*operations)
    except OutcomeUnknown as error:
        raise Disconnected(str(error)) from error


async def pass_barrier(session: Session, path: str) -> None:
    """Return when later reads of this session see all writes that were done before the call.

    A write is a quorum operation, which `sync` is not (ZOOKEEPER-1675). Raises `Disconnected`.
    """
    if await write_repeatable(session, Put(path, b"")) is not None:
        raise _wiped(path)


async def get_required(session: Session, path: str, on_change: Notify | None = None) -> Node:
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


async def get_all(session: Session, paths: Iterable[str]) -> list[Node | None]:
    """Return the nodes, pipelined. Raises `Disconnected`."""
    wanted, nodes = list(paths), list[Node | None]()
    for start in range(0, len(wanted), _PIPELINED_MAX):
        some = wanted[start : start + _PIPELINED_MAX]
        nodes += await asyncio.gather(*(session.get(path) for path in some))
    return nodes
