"""Looking for an offset in evicted data: what would wait for the device is read by a thread."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakelog.base.topic_config import LogConfig
from lakelog.runtime.api import File
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.handles import LogSlice
from lakelog.storage.log import Log
from lakelog.storage.preparation import NotReady, Preparation
from storage_kit import NOW, Store, append, make_batch

BATCHES = 60
PAGE = 4096


class ColdDisk(PosixDisk):
    """Its page cache has nothing of the logs but what `read_ahead` has brought in since."""

    def __init__(self) -> None:
        super().__init__()
        self.resident: set[tuple[str, int]] = set()
        self.asked = 0
        self.failure: OSError | None = None
        self.may_wait = False

    def is_resident(self, file: File, offset: int, size: int) -> bool:
        self.asked += 1
        return all(self.has(str(file.path), at) for at in (offset, offset + size - 1))

    def read_ahead(self, file: File, offset: int, size: int) -> bool:
        if self.failure is not None:
            raise self.failure
        first, last = offset // PAGE, (offset + size - 1) // PAGE
        self.resident |= {(str(file.path), page) for page in range(first, last + 1)}
        return super().read_ahead(file, offset, size)

    def has(self, path: str, at: int) -> bool:
        return (path, at // PAGE) in self.resident


@pytest.fixture
def disk() -> ColdDisk:
    return ColdDisk()


@pytest.fixture(params=[0, 1], ids=["one time", "rising times"])
def log(tmp_path: Path, disk: ColdDisk, request: pytest.FixtureRequest) -> Log:
    """Older segments, whose indexes are not loaded, of batches of 5 records in 15,000 bytes."""
    config = LogConfig(index_interval_bytes=4096, segment_bytes=200_000)
    store = Store(disk, config=config, path=tmp_path)
    written = store.create()
    for number in range(BATCHES):
        append(written, make_batch(5, size=3_000, timestamp=NOW + number * request.param))
    log = store.restart()
    assert len(log.segments) > 3
    for segment in log.segments:
        segment.unchecked, segment.checks = 0, None
        if segment.sealed:
            segment.unload()
    return log


@contextmanager
def on_the_loop(disk: ColdDisk, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails for a read of a log that would have to wait."""
    pread = os.pread

    def checked(fd: int, size: int, offset: int) -> bytes:
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        if path.endswith(".log"):
            assert disk.may_wait or disk.has(path, offset), f"the loop waits for {offset}"
        return pread(fd, size, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", checked)
        yield


def read(log: Log, offset: int) -> LogSlice:
    found = log.read(offset, 20_000, end_offset=log.log_end_offset, may_wait=False)
    assert found is not None
    return found


def job_of(log: Log, offset: int) -> Preparation:
    with pytest.raises(NotReady) as refused:
        read(log, offset)
    return refused.value.job


def prepared(log: Log, disk: ColdDisk, offset: int) -> LogSlice:
    """What is read once all is there that had to be read first."""
    for _ in range(3):
        try:
            return read(log, offset)
        except NotReady as first:
            disk.may_wait = True
            first.job.run()
            disk.may_wait = False
            first.job.finish()
    return read(log, offset)


def test_the_loop_never_waits_where_it_looks_for_an_offset(
    log: Log, disk: ColdDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offset in range(0, log.active_segment.base_offset, 7):
        disk.resident.clear()
        log.sought = None
        for segment in log.segments[:-1]:
            segment.unload()
        with on_the_loop(disk, monkeypatch):
            found = prepared(log, disk, offset)
        assert found.read()[:8] == (offset - offset % 5).to_bytes(8, "big")
        found.release()


def test_what_is_gone_again_is_waited_for(log: Log, disk: ColdDisk) -> None:
    prepared(log, disk, 17).release()
    disk.resident.clear()
    job = job_of(log, 42)
    job.run()
    job.finish()
    disk.resident.clear()
    log.segments[0].index.trusted = True
    read(log, 42).release()


def test_an_abandoned_job_has_read_nothing(log: Log) -> None:
    segment = log.segments[0]
    job_of(log, 17).abandon()
    again = job_of(log, 17)
    assert segment.handle is not None
    assert segment.handle.readers == 1
    again.run()
    again.finish()
    assert segment.handle.readers == 0


def test_a_device_that_fails_is_told_of(log: Log, disk: ColdDisk) -> None:
    disk.failure = OSError(errno.EIO, "planted")
    job = job_of(log, 17)
    job.run()
    job.finish()
    assert job.failure is disk.failure


def test_others_may_wait(log: Log) -> None:
    found = log.read(17, 20_000, end_offset=log.log_end_offset)
    assert found is not None
    found.release()
