"""Looking for an offset in evicted data: what would wait for the device is read by a thread."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from counted_work import lines_run
from lakelog.base.config.log_config import LogConfig
from lakelog.runtime.api import File
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import INDEX, LOG
from lakelog.storage.log import Log
from lakelog.storage.preparation import NotReady, Preparation
from lakelog.storage.reading.seeking import IndexJob
from lakelog.storage.segments.checking import UncheckedSlice, begin_check
from lakelog.storage.segments.handles import LogSlice
from lakelog.storage.segments.index_keeper import IndexKeeper
from lakelog.storage.segments.segment_index import IndexFiles
from storage_kit import NOW, Store, append, make_batch

BYTES = 900_000
PAGE = 4096


class ColdDisk(PosixDisk):
    """Its page cache has nothing of the logs but what threads have brought in since."""

    def __init__(self) -> None:
        super().__init__()
        self.resident: set[tuple[str, int]] = set()
        self.asked = 0
        self.failure: OSError | None = None
        self.may_wait = False
        self.keeps = True

    def is_resident(self, file: File, offset: int, size: int) -> bool:
        self.asked += 1
        return all(self.has(str(file.path), at) for at in (offset, offset + size - 1))

    def read_ahead(self, file: File, offset: int, size: int) -> bool:
        if self.failure is not None:
            raise self.failure
        self.note(str(file.path), offset, size)
        return super().read_ahead(file, offset, size)

    def read(self, path: Path) -> bytes:
        if self.failure is not None:
            raise self.failure
        return super().read(path)

    def note(self, path: str, offset: int, size: int) -> None:
        first, last = offset // PAGE, (offset + size - 1) // PAGE
        if self.keeps:
            self.resident |= {(path, page) for page in range(first, last + 1)}

    def has(self, path: str, at: int) -> bool:
        return (path, at // PAGE) in self.resident


@pytest.fixture
def disk() -> ColdDisk:
    return ColdDisk()


@pytest.fixture(
    params=[(3_000, 0), (3_000, 1), (300, 1)], ids=["one time", "rising times", "short batches"]
)
def log(tmp_path: Path, disk: ColdDisk, request: pytest.FixtureRequest) -> Log:
    """Older segments, whose indexes are not loaded, of batches of 5 records.

    Each has an index entry, or every third if they are short.
    """
    size, step = request.param
    config = LogConfig(index_interval_bytes=4096, segment_bytes=200_000)
    store = Store(disk, config=config, path=tmp_path)
    written = store.create()
    for number in range(BYTES // (5 * size)):
        append(written, make_batch(5, size=size, timestamp=NOW + number * step))
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
        if path.endswith(".log") and disk.may_wait:
            disk.note(path, offset, size)
        elif path.endswith(".log"):
            assert disk.has(path, offset), f"the loop waits for {offset}"
        return pread(fd, size, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", checked)
        yield


def read(log: Log, offset: int, end: int | None = None) -> LogSlice:
    found = log.read(offset, 20_000, end_offset=end or log.log_end_offset, may_wait=False)
    assert found is not None
    if isinstance(found, UncheckedSlice):
        raise NotReady(begin_check(found, log.leader_epochs))
    return found


def job_of(log: Log, offset: int) -> Preparation:
    with pytest.raises(NotReady) as refused:
        read(log, offset)
    return refused.value.job


def prepared(log: Log, disk: ColdDisk, offset: int, end: int | None = None) -> LogSlice:
    """Batches that are read after all jobs that had to run first."""
    for _ in range(6):
        try:
            return read(log, offset, end)
        except NotReady as first:
            disk.may_wait = True
            first.job.run()
            disk.may_wait = False
            first.job.finish()
            assert first.job.failure is None
    return read(log, offset, end)


def forget(log: Log, disk: ColdDisk) -> None:
    disk.resident.clear()
    log.segments.sought = ()
    log.segments.known_batches.clear()
    for segment in log.segments[:-1]:
        segment.unload()


@pytest.mark.parametrize("is_checked", [True, False])
def test_the_loop_never_waits_where_it_looks_for_an_offset(
    log: Log, disk: ColdDisk, monkeypatch: pytest.MonkeyPatch, is_checked: bool
) -> None:
    for offset in range(0, log.segments.active.base_offset, 17):
        forget(log, disk)
        for segment in log.segments if not is_checked else ():
            segment.find(segment.size)
        with on_the_loop(disk, monkeypatch):
            found = prepared(log, disk, offset)
        assert found.read()[:8] == (offset - offset % 5).to_bytes(8, "big")
        found.release()


def test_nor_where_it_searches_for_the_high_watermark(
    log: Log, disk: ColdDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = log.segments[1].base_offset
    for committed in range(6, end, 18):
        forget(log, disk)
        with on_the_loop(disk, monkeypatch):
            prepared(log, disk, 0, committed).release()


def test_an_evicted_range_is_waited_for_again(log: Log, disk: ColdDisk) -> None:
    """All of it at once, however much one read needs."""
    disk.keeps = False
    prepared(log, disk, 17).release()


@pytest.fixture
def rebuilt_here(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Segments whose batches are walked outside of a job, which the loop would do."""
    found: list[Path] = []
    rebuild = IndexKeeper.begin_rebuild

    def begin_rebuild(keeper: IndexKeeper) -> None:
        if type(keeper._files) is IndexFiles:  # a job does not write files
            found.append(keeper._files.path(INDEX))
        rebuild(keeper)

    monkeypatch.setattr(IndexKeeper, "begin_rebuild", begin_rebuild)
    return found


@pytest.mark.parametrize("is_checked", [True, False])
@pytest.mark.parametrize("bit", [0, 9, 40])
def test_a_wrong_index_is_rebuilt_by_a_job(
    log: Log, disk: ColdDisk, rebuilt_here: list[Path], bit: int, is_checked: bool
) -> None:
    """It may be out of order, or lead to no batch, or to another one."""
    segment = log.segments[0]
    right = list(segment.index.positions)
    for entry in (0, 1, 2, len(right) - 1):
        forget(log, disk)
        if not is_checked:
            segment.find(segment.size)
        _flip(disk, segment.path(INDEX), 8 * entry + 7 - bit // 8, bit % 8)
        for offset in range(0, segment.next_offset, 5):
            found = prepared(log, disk, offset)
            assert found.read()[:8] == offset.to_bytes(8, "big")
            found.release()
        assert list(segment.index.positions) == right
        segment.unload()
        assert list(segment.index.positions) == right, "its file was written"
    assert rebuilt_here == []


def test_an_index_that_a_check_finds_wrong_is_rebuilt_by_a_job(
    log: Log, disk: ColdDisk, rebuilt_here: list[Path]
) -> None:
    """Also of a segment that is appended to, while a thread reads it."""
    segment = log.segments.active
    for number in range(40):
        append(log, make_batch(5, size=3_000, timestamp=NOW + number))
    log.flush()
    end = log.log_end_offset
    segment.find(segment.size)
    segment.index.trusted = False
    segment.index.offsets[1] -= 1
    job = begin_check(_unchecked(log, segment.base_offset), log.leader_epochs)
    job.run()
    job.finish()
    assert segment.indexes.is_wrong
    rebuild = job_of(log, segment.base_offset)
    rebuild.run()
    for number in range(40):
        append(log, make_batch(5, size=3_000, timestamp=NOW + number))
    rebuild.finish()
    assert segment.index.trusted
    found = list(segment.index.offsets), list(segment.index.positions)
    times = (
        list(segment.index.times),
        segment.indexes.max_timestamp_offset,
        segment.indexes.bytes_since_entry,
    )
    assert rebuilt_here == []
    segment.rebuild_index("asked for")
    assert (list(segment.index.offsets), list(segment.index.positions)) == found
    last = segment.indexes.max_timestamp_offset, segment.indexes.bytes_since_entry
    assert (list(segment.index.times), *last) == times
    for offset in range(end, log.log_end_offset, 5):
        prepared(log, disk, offset).release()


def test_a_segment_without_a_possible_index_is_walked_once(
    log: Log, disk: ColdDisk, rebuilt_here: list[Path]
) -> None:
    """A fetch that comes again and again costs the loop no walk over the batches."""
    segment = log.segments[0]
    position = segment.index.positions[len(segment.index.positions) // 2]
    forget(log, disk)
    _flip(disk, segment.path(INDEX), 4, 7)  # before the file
    _flip(disk, segment.path(LOG), position + 8, 6)
    for _ in range(3):
        with pytest.raises(CorruptLog):
            prepared(log, disk, 17)
    segment_lines = lines_run(lambda: _refused(log))
    assert segment_lines < 300
    assert rebuilt_here == []


def _refused(log: Log) -> None:
    log.segments.known_batches.clear()
    with pytest.raises(CorruptLog):
        read(log, 17)


def test_indexes_loaded_before_a_truncation_are_not_used(log: Log) -> None:
    segment = log.segments[0]
    job = job_of(log, 17)
    job.run()
    log.truncate_to(60)
    for _ in range(30):
        append(log, make_batch(5, size=100))
    before = segment.index
    positions = list(before.positions)
    job.finish()
    assert segment.index is before
    assert list(before.positions) == positions


def _unchecked(log: Log, offset: int) -> UncheckedSlice:
    found = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
    assert isinstance(found, UncheckedSlice)
    return found


def _flip(disk: ColdDisk, path: Path, position: int, bit: int) -> None:
    file = disk.open(path)
    (byte,) = file.read_at(position, 1)
    file.write_at(position, bytes([byte ^ 1 << bit]))
    file.close()


def test_an_index_out_of_order_is_rebuilt(log: Log, disk: ColdDisk) -> None:
    """No position is used before: a wrong one may lie before the file."""
    segment = log.segments[0]
    file = disk.open(segment.path(INDEX))
    file.write_at(0, struct.pack(">ii", 4, -5))
    file.close()
    found = prepared(log, disk, 17)
    assert found.read()[:8] == (15).to_bytes(8, "big")
    found.release()
    assert segment.index.positions[0] > 0


def test_an_abandoned_job_has_read_nothing(log: Log) -> None:
    segment = log.segments[0]
    job_of(log, 17).abandon()
    loading = job_of(log, 17)
    loading.run()
    loading.finish()
    job_of(log, 17).abandon()
    again = job_of(log, 17)
    assert segment.handle is not None
    assert segment.handle.readers == 1
    again.run()
    again.finish()
    assert segment.handle.readers == 0


def test_a_device_failure_is_raised(log: Log, disk: ColdDisk) -> None:
    disk.failure = OSError(errno.EIO, "planted")
    job = job_of(log, 17)
    job.run()
    job.finish()
    assert job.failure is disk.failure


def test_others_may_wait(log: Log) -> None:
    found = log.read(17, 20_000, end_offset=log.log_end_offset)
    assert found is not None
    found.release()


def test_an_index_that_is_rebuilt_while_its_segment_grows_is_written_as_it_is(
    tmp_path: Path, disk: ColdDisk
) -> None:
    """More entries than are kept in memory before they are written."""
    log = Store(disk, config=LogConfig(index_interval_bytes=300), path=tmp_path).create()
    for number in range(400):
        append(log, make_batch(5, timestamp=NOW + number))
    segment = log.segments.active
    segment.distrust_index()
    job = IndexJob(log.segments, segment)
    job.run()
    for number in range(400, 410):
        append(log, make_batch(5, timestamp=NOW + number))
    job.finish()
    segment.indexes.write()
    written = IndexFiles(disk, log.folder, segment.base_offset).read()
    assert list(written.offsets) == list(segment.index.offsets)
    assert list(written.times) == list(segment.index.times)
    assert segment.max_timestamp == NOW + 413
