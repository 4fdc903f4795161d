"""The metadata log of a simulated broker: `SqliteLog` as it is shipped, on the simulated disk."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from pathlib import Path
from typing import TypeVar

from doubles.disk import MemoryDisk
from doubles.sqlite_vfs import Mount
from lakelog.metadata.errors import BrokerIdInUse
from lakelog.metadata.store.api import (
    BATCH_BYTES_MAX,
    ENTRIES_KEPT,
    AppendOutcome,
    Change,
    ControllerTerm,
    LogRead,
    MetadataBatch,
    Snapshot,
)
from lakelog.metadata.store.database import decode_note, encode_note
from lakelog.metadata.store.sqlite import SqliteLog
from lakelog.runtime.api import Tasks

T = TypeVar("T")


class MemoryDatabase:
    """The files of a `SqliteLog` on a simulated disk: a `Database`."""

    def __init__(self, mount: Mount, path: Path) -> None:
        self.path = path
        self._mount = mount
        self._disk = mount.disk
        self._end_path = path.with_name(path.name + "-end")

    def exists(self) -> bool:
        return self._disk.exists(self.path)

    def connect(self) -> sqlite3.Connection:
        return self._mount.connect(self.path)

    def check_place(self) -> None:
        """A simulated disk does not move files of a running broker."""

    def note_committed(self, end: int, controller_epoch: int) -> None:
        file = self._disk.open(self._end_path, create=True)
        note = encode_note(end, controller_epoch)
        try:
            file.write_at(0, note)
            file.truncate(len(note))
        finally:
            file.close()

    def read_committed(self) -> tuple[int, int]:
        if not self._disk.exists(self._end_path):
            return 0, 0
        return decode_note(self._end_path, self._disk.read(self._end_path))


class SimulatedMetadata:
    """One database on one disk, shared by the brokers of a cluster.

    Each process of a broker has a `handle` of its own.
    """

    def __init__(self, disk: MemoryDisk, path: Path, *, entries_kept: int = ENTRIES_KEPT) -> None:
        self.disk = disk
        self.path = path
        self.entries_kept = entries_kept
        self.stores: list[SimulatedStore] = []

    def handle(self, tasks: Tasks, is_alive: Callable[[], bool]) -> SimulatedStore:
        return SimulatedStore(self, tasks, is_alive)

    def live(self, within_s: float = float("inf")) -> dict[int, bytes]:
        """Return the incarnation ids of registered brokers whose processes are alive.

        within_s: for which a process that is paused counts, if that is less than its session.
        """
        self.stores = [store for store in self.stores if store.is_alive()]
        return dict(
            store.registered
            for store in self.stores
            if store.registered is not None and not store.is_silent(within_s)
        )

    def report(self, change: Change, source: SimulatedStore | None) -> None:
        """Call the watchers of every other live store."""
        for store in self.stores:
            if store is not source and store.is_alive():
                store.report(change)


class SimulatedStore:
    """A `MetadataStore` of one process."""

    heartbeat_s = float("inf")

    def __init__(
        self, metadata: SimulatedMetadata, tasks: Tasks, is_alive: Callable[[], bool]
    ) -> None:
        self._metadata = metadata
        self._tasks = tasks
        self.is_alive = is_alive
        self.is_silent: Callable[[float], bool] = lambda within_s: False
        """Returns whether the process has sent no heartbeat for so many seconds, or for the session
        timeout."""
        self.entry_bytes_max = BATCH_BYTES_MAX
        self.registered: tuple[int, bytes] | None = None
        self._mount = Mount(metadata.disk, is_alive)
        self._log = SqliteLog(
            MemoryDatabase(self._mount, metadata.path), entries_kept=metadata.entries_kept
        )
        self._watchers: list[
            tuple[Callable[[Change], None], Context, asyncio.AbstractEventLoop]
        ] = []

    async def open(self, *, create: bool) -> None:
        await self._run(lambda: self._log.open(create=create))
        self._metadata.stores.append(self)

    async def append(self, batch: MetadataBatch, expected_end: int) -> AppendOutcome:
        answer = await self._run(lambda: self._log.append(batch, expected_end))
        self._metadata.report(Change.ENTRIES, self)
        return answer

    def report(self, change: Change) -> None:
        """Call the watchers as the process that watches, not as the process of the change."""
        for callback, context, loop in self._watchers:
            loop.call_soon(callback, change, context=context)

    async def position_of(self, writer_id: bytes, serial: int) -> int | None:
        return await self._run(lambda: self._log.position_of(writer_id, serial))

    async def read(self, from_index: int) -> LogRead:
        return await self._run(lambda: self._log.read(from_index))

    async def write_snapshot(self, snapshot: Snapshot) -> None:
        await self._run(lambda: self._log.write_snapshot(snapshot))

    def watch(self, callback: Callable[[Change], None]) -> None:
        self._watchers.append((callback, copy_context(), asyncio.get_running_loop()))

    def watch_device(self, on_failure: Callable[[], object]) -> None:
        self._log.on_device_failure = on_failure

    async def register_broker(self, broker_id: int, incarnation_id: bytes) -> None:
        if broker_id in self._metadata.live():
            raise BrokerIdInUse(f"broker {broker_id} is running")
        self.registered = broker_id, incarnation_id
        self._metadata.report(Change.BROKERS, self)

    async def live_brokers(self) -> Mapping[int, bytes]:
        return self._metadata.live()

    async def beating_brokers(self, within_s: float) -> Mapping[int, bytes]:
        return self._metadata.live(within_s)

    async def report_dead(self, broker_id: int, incarnation_id: bytes) -> None:
        """Do nothing, as the embedded store."""

    async def controller(self) -> ControllerTerm:
        return await self._run(self._log.controller)

    async def elect(self, *, past: int = -1) -> ControllerTerm:
        term = await self._run(lambda: self._elect(past))
        self._metadata.report(Change.TERM, self)
        return term

    async def resign(self, epoch: int) -> ControllerTerm:
        term = await self._run(lambda: self._log.end_term(epoch))
        self._metadata.report(Change.TERM, self)
        return term

    def _elect(self, past: int) -> ControllerTerm:
        assert self.registered is not None
        term, broker_id = self._log.controller(), self.registered[0]
        is_others = term.broker_id != broker_id and term.epoch != past
        if is_others and term.is_held(self._metadata.live()):
            return term
        return self._log.take_term(*self.registered, term)

    async def close(self) -> None:
        self.registered = None
        if self in self._metadata.stores:
            self._metadata.stores.remove(self)
            self._metadata.report(Change.BROKERS, self)
            await self._run(self._log.close)

    def release(self) -> None:
        """Free the memory that SQLite holds for the dead process, and report its death.

        It may have died between a commit and the report of it.
        """
        self._log.close()
        self._metadata.report(~Change(0), self)

    async def _run(self, work: Callable[[], T]) -> T:
        return await self._tasks.offload("metadata", lambda: self._uninterrupted(work))

    def _uninterrupted(self, work: Callable[[], T]) -> T:
        """Run a call of SQLite; raise its interruption if the process was killed within."""
        try:
            return work()
        finally:
            if self._mount.interruption is not None:
                raise self._mount.interruption
