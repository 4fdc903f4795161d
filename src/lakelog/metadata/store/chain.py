"""The chained checksum of the log, and the mark of it in the data folder.

Each entry carries the hash of itself and the chain before it. A broker keeps the newest
(end, chain) that it has seen: 48 bytes in `metadata.mark`.

    0 log id 16s   16 end u64   24 chain 16s   40 CRC-32 of all before u32   44 zero

A store that lost acknowledged writes (ZOOKEEPER-4785, ZOOKEEPER-4712), was wiped, or was restored
from a backup has a smaller end or another chain. The mark is never synced: after a power failure it
may be old, then it detects less, but it is never wrong.

The chain does not depend on the store. A copy of the log of a stopped cluster in another store
begins with a snapshot of the image at the end of the log, and continues its log id, end, chain and
controller epoch. So cluster id, topic ids, epochs, settings and blocks of producer ids stay, and
the marks fit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import zlib
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lakelog.base.events import event
from lakelog.metadata.errors import MetadataCorrupt, MetadataError
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import decode_records, encode_records
from lakelog.metadata.store.api import LogRead, MetadataBatch, MetadataStore, MovableStore

if TYPE_CHECKING:
    from collections.abc import Iterable


MARK_FILE = "metadata.mark"
_FORM = struct.Struct(">16sQ16sII")
_COVERED = 40
_logger = logging.getLogger(__name__)


def first_link(log_id: bytes) -> bytes:
    """Return the chain before the first entry."""
    return blake2b(log_id, digest_size=16).digest()


def next_link(chain: bytes, index: int, batch: MetadataBatch) -> bytes:
    """Return the chain after an entry."""
    head = struct.pack(">QQ16sQ", index, batch.controller_epoch, batch.writer_id, batch.serial)
    link = blake2b(chain, digest_size=16)
    link.update(head)
    link.update(batch.payload)
    return link.digest()


class Mark(NamedTuple):
    """The newest state of the log that a data folder has seen."""

    log_id: bytes
    end: int
    chain: bytes


def decode_mark(data: bytes) -> Mark | None:
    """Return the mark in the contents of a file, or none if they are damaged."""
    if len(data) == _FORM.size:
        *fields, checksum, rest = _FORM.unpack(data)
        if checksum == zlib.crc32(data[:_COVERED]) and not rest:
            return Mark(*fields)
    return None


class LogHead(NamedTuple):
    """The place of a log for errors, the newest verified state, and the cause of a mismatch."""

    location: str
    seen: Mark
    loss: str

    def check(self, end: int, chain: bytes | None) -> None:
        """Raise `MetadataCorrupt` if the log does not continue the state that was seen before.

        chain: before entry `end`; None if it is not known.
        """
        if end < self.seen.end:
            raise MetadataCorrupt(
                f"{self.location} ends at entry {end}, but entry {self.seen.end} was seen before: "
                f"{self.loss}"
            )
        if end == self.seen.end and chain not in (None, self.seen.chain):
            raise self.forked()

    def forked(self) -> MetadataCorrupt:
        """Return the error for another history."""
        return MetadataCorrupt(
            f"{self.location} has another history than this broker has seen up to entry "
            f"{self.seen.end}: {self.loss}"
        )

    def follow(
        self, start: int, chain: bytes | None, entries: Iterable[tuple[MetadataBatch, bytes]]
    ) -> bytes | None:
        """Return the chain after consecutive entries with their stored chains.

        chain: before entry `start`; None if it is not known. Raises `MetadataCorrupt` if an entry
        does not continue the one before it or the state that was seen before.
        """
        for index, (batch, stored) in enumerate(entries, start):
            if index == self.seen.end and chain not in (None, self.seen.chain):
                raise self.forked()
            if chain is not None and next_link(chain, index, batch) != stored:
                raise MetadataCorrupt(f"{self.location}: entry {index} is damaged")
            chain = stored
        return chain


class Marks(Protocol):
    """The place of the mark."""

    def read(self) -> Mark | None:
        """Return the mark if there is a valid one. Raises `OSError`."""
        ...

    def keep(self, mark: Mark) -> None:
        """Replace the mark, in a thread that may wait. Not durable. Raises `OSError`."""
        ...

    async def write(self, mark: Mark) -> None:
        """Replace the mark without blocking the loop. Not durable. Raises `OSError`."""
        ...


class MarkFile:
    """`Marks` in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Mark | None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        if (mark := decode_mark(data)) is not None:
            return mark
        _logger.warning(
            "%s is damaged and will be rebuilt",
            self._path,
            extra=event("file_rebuilt", path=self._path),
        )
        return None

    async def write(self, mark: Mark) -> None:
        await asyncio.to_thread(self.keep, mark)

    def keep(self, mark: Mark) -> None:
        assert len(mark.log_id) == len(mark.chain) == 16, "`struct` cuts or fills them"
        head = struct.pack(">16sQ16s", *mark)
        data = head + struct.pack(">II", zlib.crc32(head), 0)
        # A broker opens a shared store before its folder.
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, os.write(descriptor, data))
        finally:
            os.close(descriptor)


class MemoryMarks:
    """`Marks` that end with the process, for a command without a data folder."""

    def __init__(self) -> None:
        self._mark: Mark | None = None

    def read(self) -> Mark | None:
        return self._mark

    def keep(self, mark: Mark) -> None:
        self._mark = mark

    async def write(self, mark: Mark) -> None:
        self.keep(mark)


class MetadataInUse(MetadataError):  # noqa: N818
    """A live broker uses the log that was to be moved."""


async def copy_log(source: MovableStore, target: MovableStore) -> MetadataImage:
    """Copy a log into an empty store; return the image at its end.

    source: open. target: not open, and closed by the caller, too.

    Raises `MetadataInUse` if a broker is live before or after the reading, and `MetadataError`.
    """
    await _require_stopped(source)
    image = image_of(await source.read(0))
    state = await source.state()
    await _require_stopped(source)
    if state.end != image.end:
        raise MetadataInUse("the metadata has changed meanwhile: stop the brokers that use it")
    await target.load(state, encode_records(image.to_records()))
    return image


def image_of(read: LogRead) -> MetadataImage:
    """Return the image after all entries of a read from 0."""
    image = MetadataImage()
    if read.snapshot is not None:
        image = image.apply_all(decode_records(read.snapshot.payload), read.snapshot.end)
    for entry in read.entries:
        image = image.apply_all(decode_records(entry.payload), entry.index + 1)
    return image


async def _require_stopped(source: MetadataStore) -> None:
    live = sorted(await source.live_brokers())
    if live:
        names = ", ".join(map(str, live))
        raise MetadataInUse(f"live brokers use the metadata (node ids: {names}); stop them first")
