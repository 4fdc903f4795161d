"""A metadata file that all brokers of a cluster share, as on one host, with sessions.

The session of a process ends with its death at once, and after the session timeout of a pause.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Context
from pathlib import Path

from doubles.disk import MemoryDisk
from doubles.sqlite_metadata import SimulatedMetadata, SimulatedStore
from lakelog.metadata.store.api import BATCH_BYTES_MAX, Change
from lakelog.runtime.api import Random, Tasks
from simulator.cluster.plan import ENTRIES_KEPT
from simulator.engine.loop import SimulatedLoop
from simulator.engine.process import Process

_PATH = Path("/shared/cluster.db")
_TICKS_PER_TIMEOUT = 8


class SharedFile:
    """A `MetadataPlace` of all brokers."""

    location = _PATH

    def __init__(
        self,
        loop: SimulatedLoop,
        disk: MemoryDisk,
        timeout_s: float,
        entry_bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        disk.make_dirs(_PATH.parent)
        self._metadata = SimulatedMetadata(disk, _PATH, entries_kept=ENTRIES_KEPT)
        self._loop = loop
        self._timeout_s = timeout_s
        self._entry_bytes_max = entry_bytes_max
        self._live: Mapping[int, bytes] = {}
        self._tick()

    def handle(self, tasks: Tasks, chance: Random, process: Process) -> SimulatedStore:
        store = self._metadata.handle(tasks, lambda: process.alive)
        store.is_silent = lambda within_s: self._is_silent(process, within_s)
        store.entry_bytes_max = self._entry_bytes_max
        return store

    def _is_silent(self, process: Process, within_s: float) -> bool:
        silence_s = self._loop.time() - process.paused_at
        return process.is_paused and silence_s > min(self._timeout_s, within_s)

    def _tick(self) -> None:
        """Report sessions that ended or began since the last call."""
        live = self._metadata.live()
        if live != self._live:
            self._live = live
            self._metadata.report(Change.BROKERS, None)
        self._loop.call_later(self._timeout_s / _TICKS_PER_TIMEOUT, self._tick, context=Context())
