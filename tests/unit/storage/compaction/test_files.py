"""Source files of a compaction, and the cleaned segment compared with its batches."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from compaction_kit import LIMITS
from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.compaction.files import CleanedSegment, SourceFiles
from lakelog.storage.compaction.plan import examine, make_job
from lakelog.storage.files import CLEANED, INDEX, LOG, TIME_INDEX
from lakelog.storage.segments.segment_index import SegmentIndex
from storage_kit import DATA, NOW, ManualClock, Store, append, make_batch, open_files

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}))


def test_the_files_are_closed_at_the_end(tmp_path: Path) -> None:
    store = Store(PosixDisk(), config=CONFIG, path=tmp_path)
    log = store.create()
    for _ in range(3):
        append(log, make_batch(2))
        log.roll(NOW)
    log.flush()
    job = make_job(examine(log, None, NOW, log.log_end_offset), NOW, LIMITS)
    before = open_files(tmp_path)
    with ExitStack() as files:
        SourceFiles(store.disk, job, lambda size: None, files)
        sources = len(job.segments) + len(job.later)
        assert len(open_files(tmp_path)) == len(before) + sources
    assert open_files(tmp_path) == before


BASE = 1000


def content(disk: MemoryDisk, suffix: str) -> bytes:
    return disk.read(DATA / f"{BASE:020}{suffix}{CLEANED}")


def test_a_segment_of_several_writes_holds_every_byte_in_order() -> None:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    batches = [make_batch(1, size=700_000, timestamp=NOW + number) for number in range(5)]
    segment = CleanedSegment(disk, DATA, BASE, interval=1)
    for number, batch in enumerate(batches):
        segment.append(batch, BASE + number, NOW + number)
    segment.finish((), NOW)
    assert content(disk, LOG) == b"".join(batches)
    expected = SegmentIndex()
    position = 0
    for number, batch in enumerate(batches):
        if number:
            expected.add(number, position)
            expected.add_time(NOW + number, number)
        position += len(batch)
    assert content(disk, INDEX) == expected.encode_offsets(0)
    assert content(disk, TIME_INDEX) == expected.encode_times(0)


def test_an_index_entry_follows_more_than_an_interval_of_bytes() -> None:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    batch = make_batch(1)
    segment = CleanedSegment(disk, DATA, BASE, interval=len(batch))
    for number in range(7):
        segment.append(batch, BASE + number, NOW)
    segment.finish((), NOW)
    index = SegmentIndex.decode(content(disk, INDEX), content(disk, TIME_INDEX))
    assert list(index.offsets) == [2, 4, 6]
    assert list(index.positions) == [number * len(batch) for number in index.offsets]
