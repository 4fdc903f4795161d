"""Processes that share one simulated metadata log, and die in it."""

from __future__ import annotations

import asyncio
import random
from contextvars import ContextVar
from pathlib import Path

from doubles.disk import MemoryDisk
from doubles.sqlite_metadata import SimulatedMetadata
from lakelog.metadata.store.api import Change
from lakelog.runtime.posix import SystemClock
from simulator.engine.tasks import SimulatedTasks

PROCESS: ContextVar[str] = ContextVar("PROCESS", default="none")


def test_a_killed_process_is_reported_to_the_others() -> None:
    async def main() -> None:
        disk = MemoryDisk(SystemClock())
        disk.make_dirs(Path("/data"))
        metadata = SimulatedMetadata(disk, Path("/data/metadata.db"))
        tasks = SimulatedTasks(asyncio.get_running_loop(), random.Random(7))
        alive = True
        victim = metadata.handle(tasks, lambda: alive)
        other = metadata.handle(tasks, lambda: True)
        changes: asyncio.Queue[Change] = asyncio.Queue()
        await victim.open(create=True)
        await victim.register_broker(1, b"1" * 16)
        await other.open(create=False)
        other.watch(changes.put_nowait)
        alive = False
        victim.release()
        assert await changes.get() == Change.ENTRIES | Change.BROKERS | Change.TERM
        assert await other.live_brokers() == {}
        await other.close()

    asyncio.run(main())


def test_a_watcher_runs_as_the_process_that_watches() -> None:
    """Otherwise its tasks would die with the process that made the change."""

    async def main() -> None:
        disk = MemoryDisk(SystemClock())
        disk.make_dirs(Path("/data"))
        metadata = SimulatedMetadata(disk, Path("/data/metadata.db"))
        tasks = SimulatedTasks(asyncio.get_running_loop(), random.Random(7))
        one, other = (metadata.handle(tasks, lambda: True) for _ in range(2))
        seen: asyncio.Queue[str] = asyncio.Queue()
        PROCESS.set("watching")
        await other.open(create=True)
        other.watch(lambda change: seen.put_nowait(PROCESS.get()))
        PROCESS.set("changing")
        await one.open(create=False)
        await one.register_broker(1, b"1" * 16)
        assert await seen.get() == "watching"
        await one.close()
        await other.close()

    asyncio.run(main())
