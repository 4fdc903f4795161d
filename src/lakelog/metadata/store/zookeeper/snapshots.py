"""The snapshots of a metadata log in ZooKeeper.

A snapshot is written as chunks first, then the pointer to them, then older nodes are deleted. A
broker that fails between these steps leaves nodes that the next snapshot deletes. Only the
controller writes snapshots; its epoch is checked with each write of the pointer.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable

from lakelog.metadata.errors import MetadataCorrupt, MetadataUnavailable
from lakelog.metadata.store.api import ENTRIES_KEPT, LogState, Snapshot
from lakelog.metadata.store.zookeeper import session as zk
from lakelog.metadata.store.zookeeper.layout import NO_SNAPSHOT, Layout, Pointer, Term

_CHUNK_BYTES = 500_000
_DELETED_AT_ONCE = 100
_DELETE_TRIES = 5


class Snapshots:
    """The snapshots of one log. Every call may raise `Disconnected` and be repeated then."""

    def __init__(
        self, session: zk.ZooKeeperSession, layout: Layout, *, entries_kept: int = ENTRIES_KEPT
    ) -> None:
        self._session = session
        self._entries_kept = entries_kept
        self._layout = layout

    async def pointer(self) -> Pointer:
        """Return the pointer to the current snapshot, or a pointer with end 0."""
        path = self._layout.snapshot
        node = await zk.get_required(self._session, path)
        if not node.data:
            return NO_SNAPSHOT._replace(version=node.version)
        return Pointer.decode(path, node.data, node.version)

    async def load(self, pointer: Pointer) -> bytes | None:
        """Return the snapshot, or none if it was replaced. Raises `MetadataCorrupt`."""
        paths = (self._layout.chunk(pointer.name, number) for number in range(pointer.chunks))
        nodes = await zk.get_all(self._session, paths)
        chunks = [node.data for node in nodes if node is not None]
        if len(chunks) < pointer.chunks:
            return None
        payload = b"".join(chunks)
        if zlib.crc32(payload) != pointer.checksum:
            raise MetadataCorrupt(f"the snapshot {pointer.name} in ZooKeeper is damaged")
        return payload

    async def write(self, snapshot: Snapshot, chain: bytes, term: Term) -> None:
        """Replace an older snapshot. Raises `MetadataUnavailable` if the term is over."""
        old = await self.pointer()
        name = f"{snapshot.end:016d}-{term.epoch}"
        if old.end < snapshot.end:
            chunks = await self._write_chunks(name, snapshot.payload)
            first = max(old.first, snapshot.end - self._entries_kept)
            checksum = zlib.crc32(snapshot.payload)
            new = Pointer(snapshot.end, first, old.deleted, chunks, checksum, chain, name, 0)
            old = await self._point(new, old.version, term)
        if old.name == name:
            await self._delete_entries(old, term)
            await self._delete_generations(name)

    async def prepare(self, state: LogState, payload: bytes) -> Pointer:
        """Write the chunks of the snapshot of a moved log; return the pointer to them."""
        name = f"{state.end:016d}-{state.controller_epoch}"
        chunks, checksum = await self._write_chunks(name, payload), zlib.crc32(payload)
        return Pointer(state.end, state.end, state.end, chunks, checksum, state.chain, name, 0)

    async def _write_chunks(self, name: str, payload: bytes) -> int:
        """Return the number of chunks; replace the chunks of an earlier attempt."""
        await zk.write_repeatable(self._session, zk.Create(self._layout.generation(name)))
        starts = range(0, len(payload), _CHUNK_BYTES)
        for number, start in enumerate(starts):
            path, data = self._layout.chunk(name, number), payload[start : start + _CHUNK_BYTES]
            refusal = await zk.write_repeatable(self._session, zk.Create(path, data))
            if refusal is not None and refusal.reason is zk.Reason.EXISTS:
                await zk.write_repeatable(self._session, zk.Put(path, data))
        return len(starts)

    async def _point(self, new: Pointer, version: int, term: Term) -> Pointer:
        refusal = await zk.write_repeatable(
            self._session,
            zk.Check(self._layout.controller, term.version),
            zk.Put(self._layout.snapshot, new.encode(), version),
        )
        if refusal is not None:
            raise MetadataUnavailable("another controller or another snapshot came first")
        return await self.pointer()

    async def _delete_entries(self, pointer: Pointer, term: Term) -> None:
        """Delete the entries before the first entry that is still read."""
        for start in range(pointer.deleted, pointer.first, _DELETED_AT_ONCE):
            end = min(start + _DELETED_AT_ONCE, pointer.first)
            await self._delete(self._layout.entry(index) for index in range(start, end))
        if pointer.deleted < pointer.first:
            await self._point(pointer._replace(deleted=pointer.first), pointer.version, term)

    async def _delete_generations(self, name: str) -> None:
        """Delete the chunks of all other snapshots, and of failed attempts to write one."""
        for other in await self._session.children(self._layout.snapshots) or ():
            if other != name:
                folder = self._layout.generation(other)
                chunks = await self._session.children(folder) or ()
                await self._delete(f"{folder}/{chunk}" for chunk in chunks)
                await self._delete([folder])

    async def _delete(self, paths: Iterable[str]) -> None:
        """Delete these nodes, some of which an earlier attempt may have deleted."""
        left = list(paths)
        for _ in range(_DELETE_TRIES):
            outcomes = await asyncio.gather(
                *(self._session.write(zk.Delete(path)) for path in left), return_exceptions=True
            )
            left = [
                path
                for path, outcome in zip(left, outcomes, strict=True)
                if isinstance(outcome, BaseException)
            ]
            if not left:
                return
        raise zk.Disconnected(f"{len(left)} nodes of {self._layout.root} are still to be deleted")
