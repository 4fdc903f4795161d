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
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Self

from lakelog.metadata.errors import MetadataCorrupt, MetadataUnsupported
from lakelog.metadata.store.api import ControllerTerm, MetadataBatch

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
