"""The metadata log in the data folder: SQLite on its own thread, for one process or several.

Several processes of one host may share the file. Only then (`shared`) is there a timer: it sends
the heartbeat and looks whether another process has written. A broker alone does nothing when idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from lakelog.metadata.errors import MetadataError, MetadataUnavailable
from lakelog.metadata.store.api import (
    BATCH_BYTES_MAX,
    AppendOutcome,
    ControllerTerm,
    LogRead,
    MetadataBatch,
    Snapshot,
)
from lakelog.metadata.store.database import DatabaseFile
from lakelog.metadata.store.filesystem import refuse_network_file_system
from lakelog.metadata.store.liveness import Neighbourhood, Registration
from lakelog.metadata.store.sqlite import SqliteLog
from lakelog.runtime.api import Clock

T = TypeVar("T")

METADATA_FILE = "metadata.db"
_POLL_S = 0.1
_HEARTBEAT_S = 2.0


class EmbeddedStore:
    """A `MetadataStore`. Every call must come from one event loop."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        shared: bool = False,
        session_timeout_s: float = 9.0,
    ) -> None:
        self._path = path
        self._shared = shared
        self._log = SqliteLog(DatabaseFile(path))
        timeout_s = session_timeout_s if shared else float("inf")
        self._neighbourhood = Neighbourhood(path, clock.monotonic, timeout_s)
        self._registration: Registration | None = None
        self._broker_id = -1
        self._thread: ThreadPoolExecutor | None = None
        self._poller: asyncio.Task[None] | None = None
        self._watchers: list[Callable[[], None]] = []

    async def open(self, *, create: bool) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakelog-metadata")
        try:
            await self._run(lambda: self._open(create))
        except BaseException:
            await self.close()
            raise
        if self._shared:
            self._poller = asyncio.get_running_loop().create_task(
                self._poll(), name="metadata-poll"
            )

    async def append(self, batch: MetadataBatch, expected_end: int) -> AppendOutcome:
        assert len(batch.payload) <= BATCH_BYTES_MAX
        return await self._run(lambda: self._log.append(batch, expected_end))

    async def position_of(self, writer_id: bytes, serial: int) -> int | None:
        return await self._run(lambda: self._log.position_of(writer_id, serial))

    async def read(self, from_index: int) -> LogRead:
        return await self._run(lambda: self._log.read(from_index))

    async def write_snapshot(self, snapshot: Snapshot) -> None:
        await self._run(lambda: self._log.write_snapshot(snapshot))

    def watch(self, callback: Callable[[], None]) -> None:
        self._watchers.append(callback)

    def watch_device(self, on_failure: Callable[[], object]) -> None:
        self._log.on_device_failure = on_failure

    async def register_broker(self, broker_id: int, incarnation_id: bytes) -> None:
        assert self._registration is None
        self._registration = await self._run(
            lambda: self._neighbourhood.register(broker_id, incarnation_id)
        )
        self._broker_id = broker_id

    async def live_brokers(self) -> Mapping[int, bytes]:
        return await self._run(self._neighbourhood.live)

    async def elect(self) -> ControllerTerm:
        assert self._registration is not None
        return await self._run(self._elect)

    async def close(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
            self._poller = None
        if self._thread is None:
            return
        await self._run(self._close)
        self._thread.shutdown()
        self._thread = None

    async def _run(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise MetadataUnavailable(f"{self._path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self, create: bool) -> None:
        refuse_network_file_system(self._path.parent)
        self._log.open(create=create)

    def _close(self) -> None:
        if self._registration is not None:
            self._registration.release()
            self._registration = None
        self._log.close()

    def _elect(self) -> ControllerTerm:
        term = self._log.controller()
        if term.broker_id != self._broker_id and term.broker_id in self._neighbourhood.live():
            return term
        return self._log.take_term(self._broker_id, term)

    async def _poll(self) -> None:
        """Until cancelled. A store that cannot be read now may be read at the next turn."""
        loop = asyncio.get_running_loop()
        seen = -1
        beaten = loop.time()
        while True:
            await asyncio.sleep(_POLL_S)
            if self._registration is not None and loop.time() - beaten >= _HEARTBEAT_S:
                await self._run(self._registration.beat)
                beaten = loop.time()
            try:
                version = await self._run(self._log.data_version)
            except MetadataError:
                continue
            if version != seen:
                seen = version
                for callback in self._watchers:
                    callback()
