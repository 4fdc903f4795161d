"""A cleaned segment on disk, compared with the batches that went into it."""

from __future__ import annotations

from doubles.disk import MemoryDisk
from lakelog.storage.compaction.output import CleanedSegment
from lakelog.storage.indexes.segment_index import SegmentIndex
from lakelog.storage.names import CLEANED, INDEX, LOG, TIME_INDEX
from storage_kit import DATA, NOW, ManualClock, make_batch

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
