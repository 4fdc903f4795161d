"""The data folder of a broker."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.api import File
from lakelog.server.data_folder import FolderWatch
from lakelog.server.upkeep.shortages import SPACE, Shortages
from lakelog.storage.files import PROBE
from lakelog.storage.folder.space import DiskSpaceGuard, SpaceReserve
from memory_broker import DATA, InlineTasks, MemoryBroker
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from virtual_time import run_in_virtual_time


def test_a_folder_has_logs_from_its_first_topic_on() -> None:
    with MemoryBroker() as world:
        folder = world._server._folder
        assert not folder.has_logs()
        world.create("orders")
        assert folder.has_logs()


def test_space_is_that_of_the_folders_file_system() -> None:
    with MemoryBroker() as world:
        assert world._server._folder.space() == world.disk.space(DATA)


def test_a_closed_folder_needs_no_recovery() -> None:
    with MemoryBroker() as world:
        world.create("orders", 3)
        world.restart()
        directory = world._server._folder.directory
        assert directory.clean
        assert not directory.has_lost


FOLDER = Path("/data")


class Watched:
    """A folder that is watched, and the reports about it with their times in seconds."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        clock = SimulatedClock(loop)
        self.disk = MemoryDisk(clock)
        self.disk.make_dirs(FOLDER)
        self.disk.watch(self._on_failure)
        self.has_failed = False
        tasks: AsyncioTasks = InlineTasks(loop)
        reserve = SpaceReserve(self.disk, FOLDER, 0, DiskSpaceGuard())
        self.shortages = Shortages(FOLDER, self.disk, tasks, reserve, tuple, tuple)
        self.reports: list[tuple[bool, float]] = []
        self.watch = FolderWatch(
            self.shortages, lambda: self.has_failed, self._on_report, clock, tasks
        )
        self.watch.start()

    def _on_failure(self) -> None:
        self.has_failed = True

    def _on_report(self, is_read_only: bool) -> None:
        self.reports.append((is_read_only, self.loop.time()))


def test_a_full_disk_is_reported_by_an_idle_broker_and_its_end_after_a_while() -> None:
    async def scenario(watched: Watched) -> None:
        await asyncio.sleep(7)
        assert watched.reports == []
        watched.disk.capacity = watched.disk.used
        filled = watched.loop.time()
        await asyncio.sleep(7)
        assert [each for each, _ in watched.reports] == [True]
        assert watched.reports[0][1] - filled <= 6
        watched.disk.capacity = None
        freed = watched.loop.time()
        await asyncio.sleep(15)
        assert [each for each, _ in watched.reports] == [True, False]
        assert 10 <= watched.reports[1][1] - freed <= 13
        watched.watch.stop()
        watched.shortages.stop()

    run_in_virtual_time(lambda loop: scenario(Watched(loop)))


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_device_that_failed_once_is_reported_for_good(operation: str) -> None:
    async def scenario(watched: Watched) -> None:
        watched.disk.fail(operation, errno.EIO, suffix=PROBE)  # type: ignore[arg-type]
        await asyncio.sleep(60)
        assert [each for each, _ in watched.reports] == [True]
        assert watched.reports[0][1] <= 6
        assert "a write to /data failed" in watched.shortages.reasons[SPACE]
        watched.watch.stop()
        watched.shortages.stop()

    run_in_virtual_time(lambda loop: scenario(Watched(loop)))


@pytest.mark.parametrize("code", [errno.EROFS, errno.EIO, errno.ENOENT])
def test_a_folder_without_new_files_is_reported_for_good(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(watched: Watched) -> None:
        open_file = watched.disk.open

        def refuse(path: Path, *, create: bool = False) -> File:
            if create:
                raise OSError(code, "planted", str(path))
            return open_file(path)

        monkeypatch.setattr(watched.disk, "open", refuse)
        await asyncio.sleep(60)
        assert [each for each, _ in watched.reports] == [True]
        assert watched.reports[0][1] <= 6
        assert SPACE in watched.shortages.reasons
        watched.watch.stop()
        watched.shortages.stop()

    run_in_virtual_time(lambda loop: scenario(Watched(loop)))


def test_nothing_is_left_of_a_trial() -> None:
    async def scenario(watched: Watched) -> None:
        await asyncio.sleep(20)
        assert not watched.disk.exists(FOLDER / PROBE)
        watched.watch.stop()

    run_in_virtual_time(lambda loop: scenario(Watched(loop)))


def test_the_watch_continues_after_a_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(watched: Watched) -> None:
        def fail(is_read_only: bool) -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(watched.watch, "_report", fail)
        watched.has_failed = True
        await asyncio.sleep(5)
        assert watched.reports == []
        monkeypatch.setattr(watched.watch, "_report", watched._on_report)
        await asyncio.sleep(2)
        assert [each for each, _ in watched.reports] == [True]
        watched.watch.stop()

    run_in_virtual_time(lambda loop: scenario(Watched(loop)))
    assert [each.__dict__["event"] for each in caplog.records].count("task_failed") == 1
