"""The nodes of a metadata log and the form of their data. Integers are big-endian.

    ROOT/format              magic 8s, version u32, log id 16s
    ROOT/controller          broker id i32, epoch u64, incarnation id 16s; its version is the fence
    ROOT/end                 index of the next entry u64, chain 16s
    ROOT/log/0000000000000000...   epoch u64, writer id 16s, serial u64, chain 16s, payload
    ROOT/snapshot            end, first and deleted u64, chunks and CRC-32 u32, chain 16s, name
    ROOT/snapshots/END-EPOCH/0000...   chunks of one snapshot
    ROOT/brokers/ID          incarnation id 16s; ephemeral
    ROOT/heartbeats/INCARNATION    empty; ephemeral; its version rises with each heartbeat
    ROOT/barrier             empty; a write before a read that must be current

The children of `log` are never listed: their names alone may exceed 1 MB. Each request and each
node is smaller than that, which is ZooKeeper's limit (`jute.maxbuffer`).

A snapshot is written as chunks first, then the pointer to them, then older nodes are deleted. A
broker that fails between these steps leaves nodes that the next snapshot deletes. Only the
controller writes snapshots; its epoch is checked with each write of the pointer.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from lakelog.metadata.errors import MetadataCorrupt, MetadataUnavailable, MetadataUnsupported
from lakelog.metadata.store.api import (
    ENTRIES_KEPT,
    ControllerTerm,
    LogState,
    MetadataBatch,
    Snapshot,
)
from lakelog.metadata.store.zookeeper import session as zk

_MAGIC = b"lakelog "
_VERSION = 1
_FORMAT = struct.Struct(">8sI16s")
_TERM = struct.Struct(">iQ16s")
_TAIL = struct.Struct(">Q16s")
_ENTRY = struct.Struct(">Q16sQ16s")
_POINTER = struct.Struct(">QQQII16s")


class Layout:
    """The paths of one log."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.format = f"{root}/format"
        self.controller = f"{root}/controller"
        self.end = f"{root}/end"
        self.log = f"{root}/log"
        self.snapshot = f"{root}/snapshot"
        self.snapshots = f"{root}/snapshots"
        self.brokers = f"{root}/brokers"
        self.heartbeats = f"{root}/heartbeats"
        self.barrier = f"{root}/barrier"

    def entry(self, index: int) -> str:
        return f"{self.log}/{index:016d}"

    def broker(self, broker_id: int) -> str:
        return f"{self.brokers}/{broker_id}"

    def heartbeat(self, incarnation_id: bytes) -> str:
        return f"{self.heartbeats}/{incarnation_id.hex()}"

    def generation(self, name: str) -> str:
        return f"{self.snapshots}/{name}"

    def chunk(self, name: str, number: int) -> str:
        return f"{self.snapshots}/{name}/{number:04d}"


def encode_format(log_id: bytes) -> bytes:
    return _FORMAT.pack(_MAGIC, _VERSION, log_id)


def decode_format(path: str, data: bytes) -> bytes:
    """Return the log id. Raises `MetadataCorrupt` and `MetadataUnsupported`."""
    magic, version, log_id = _unpack(_FORMAT, path, data)
    if magic != _MAGIC:
        raise MetadataCorrupt(f"{path} in ZooKeeper belongs to another program")
    if version > _VERSION:
        raise MetadataUnsupported(f"{path} has format {version} of a newer version of lakelog")
    return bytes(log_id)


class Term(NamedTuple):
    """The holder of the controller's epoch; `version` is that of the node."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    version: int

    def encode(self) -> bytes:
        return _TERM.pack(self.broker_id, self.epoch, self.incarnation_id)

    @classmethod
    def decode(cls, path: str, data: bytes, version: int) -> Self:
        broker_id, epoch, incarnation_id = _unpack(_TERM, path, data)
        return cls(broker_id, epoch, incarnation_id, version)

    def public(self) -> ControllerTerm:
        has_holder = self.broker_id >= 0
        return ControllerTerm(
            self.broker_id, self.epoch, self.incarnation_id if has_holder else b""
        )


NO_TERM = Term(-1, 0, bytes(16), 0)


class Tail(NamedTuple):
    """The index of the next entry and the chain of all entries before it."""

    end: int
    chain: bytes
    version: int

    def encode(self) -> bytes:
        return _TAIL.pack(self.end, self.chain)

    @classmethod
    def decode(cls, path: str, data: bytes, version: int) -> Self:
        end, chain = _unpack(_TAIL, path, data)
        return cls(end, chain, version)


class StoredEntry(NamedTuple):
    """One entry; `chain` covers this entry and all before it."""

    controller_epoch: int
    writer_id: bytes
    serial: int
    chain: bytes
    payload: bytes

    def encode(self) -> bytes:
        return _ENTRY.pack(*self[:4]) + self.payload

    def batch(self) -> MetadataBatch:
        return MetadataBatch(self.writer_id, self.serial, self.controller_epoch, self.payload)

    @classmethod
    def decode(cls, path: str, data: bytes) -> Self:
        epoch, writer_id, serial, chain = _unpack(_ENTRY, path, data[: _ENTRY.size])
        return cls(epoch, writer_id, serial, chain, data[_ENTRY.size :])


class Pointer(NamedTuple):
    """The current snapshot; `version` is that of the node.

    Nothing reads entries below `first` any more; those below `deleted` are deleted.
    """

    end: int
    first: int
    deleted: int
    chunks: int
    checksum: int
    chain: bytes
    name: str
    version: int

    def encode(self) -> bytes:
        assert self.deleted <= self.first <= self.end, "entries that are read are not deleted"
        return _POINTER.pack(*self[:6]) + self.name.encode()

    @classmethod
    def decode(cls, path: str, data: bytes, version: int) -> Self:
        head = _unpack(_POINTER, path, data[: _POINTER.size])
        end, first, deleted, chunks, checksum, chain = head
        name = data[_POINTER.size :].decode()
        return cls(end, first, deleted, chunks, checksum, chain, name, version)


NO_SNAPSHOT = Pointer(0, 0, 0, 0, 0, bytes(16), "", 0)


def _unpack(form: struct.Struct, path: str, data: bytes) -> tuple[Any, ...]:
    if len(data) != form.size:
        raise MetadataCorrupt(f"{path} in ZooKeeper has {len(data)} B, expected {form.size}")
    return form.unpack(data)


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
