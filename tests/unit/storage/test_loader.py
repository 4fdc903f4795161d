"""Opening of logs after a clean stop, a kill, a power failure, or damage."""

from __future__ import annotations

import errno
from functools import cache
from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.runtime.api import Disk
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.checkpoint import LEADER_EPOCHS
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import LOG, SYNC_FAILED
from lakelog.storage.log import Log
from storage_kit import (
    DATA,
    NOW,
    ManualClock,
    Store,
    append,
    create_log,
    index_entries,
    make_batch,
    memory_store,
    newest_record,
    read_batches,
    record_at,
)

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)
FOLDER = DATA / "topic-0"


def fill(log: Log, count: int = 60, start: int = 0) -> list[bytes]:
    batches = []
    for number in range(start, start + count):
        batch = make_batch(1 + number % 3, timestamp=NOW + number * 10)
        append(log, batch)
        batches.append(bytes(batch))
    return batches


def flip(disk: Disk, path: Path, position: int) -> None:
    file = disk.open(path)
    byte = file.read_at(position, 1)[0]
    file.write_at(position, bytes([byte ^ 0x10]))
    file.close()


def test_what_only_the_page_cache_has_is_not_recovered_after_a_failed_sync() -> None:
    """The kernel calls the pages clean: they would go at any time."""
    store = memory_store()
    assert isinstance(store.disk, MemoryDisk)
    log = store.create()
    kept = fill(log, 3)
    log.flush()
    store.directory.write_checkpoints()
    end = log.log_end_offset
    fill(log, 2, 3)
    store.disk.fail("sync", errno.EIO, suffix=LOG)
    with pytest.raises(OSError, match="error"):
        log.flush()
    store.disk.lose_writes(log.segments.active.path(LOG))
    log = store.killed()
    assert read_batches(log) == kept
    assert not store.disk.exists(log.folder / SYNC_FAILED), "all that is left is on the device"
    assert log.log_end_offset == log.recovery_point == end
    assert log.segments.active.size == store.disk.size(log.segments.active.path(LOG))


@pytest.mark.parametrize(("durability", "dropped"), [("page-cache", 0), ("fsync", 1)])
def test_the_page_cache_is_believed_unless_a_sync_has_failed_or_all_must_be_durable(
    monkeypatch: pytest.MonkeyPatch, durability: str, dropped: int
) -> None:
    """To read a gigabyte from the device after each kill would take seconds."""
    drops: list[Path] = []
    monkeypatch.setattr(MemoryDisk, "drop_cached", lambda _, file: drops.append(file.path))
    store = memory_store(LogConfig(durability=durability))
    batches = fill(store.create())
    assert read_batches(store.killed()) == batches
    assert len(drops) == dropped


def test_a_clean_stop_loses_nothing_and_scans_nothing() -> None:
    store = memory_store(SMALL)
    log = store.create()
    batches = fill(log)
    entries, end = index_entries(log), log.log_end_offset
    log = store.restart()
    assert store.directory.clean
    assert store.directory.recoveries == {}
    assert read_batches(log) == batches
    assert log.log_end_offset == log.recovery_point == end
    loaded = index_entries(log)
    assert loaded[:-1] == entries[:-1]
    assert loaded[-1][:2] == entries[-1][:2]
    fill(log, 30, 60)
    assert log.log_end_offset == end + 60


def test_a_kill_loses_nothing_and_the_indexes_are_made_again() -> None:
    store = memory_store(SMALL)
    batches = fill(store.create())
    entries = index_entries(store.log)
    log = store.killed()
    assert not store.directory.clean
    assert store.directory.recoveries["topic", 0].segments_scanned == len(log.segments)
    assert store.directory.recoveries["topic", 0].bytes_cut == 0
    assert read_batches(log) == batches
    assert index_entries(log) == entries


def test_only_segments_from_the_recovery_point_on_are_scanned() -> None:
    store = memory_store(SMALL)
    log = store.create()
    fill(log, 40)
    log.flush()
    store.directory.write_checkpoints()
    before = len(log.segments)
    batches = fill(log, 20, 40)
    log = store.killed()
    scanned = store.directory.recoveries["topic", 0].segments_scanned
    assert scanned == len(log.segments) - before + 1
    assert read_batches(log)[-20:] == batches


@pytest.mark.parametrize("keep", [0, 1, 30, 61, 80])
def test_a_torn_tail_is_cut_at_the_last_whole_batch_and_kept_aside(keep: int) -> None:
    store = memory_store(SMALL)
    log = store.create()
    batches = fill(log, 5)
    position = log.segments.active.size
    append(log, make_batch(1))
    file = store.disk.open(FOLDER / f"{0:020d}.log")
    tail = file.read_at(position, keep)
    file.truncate(position + keep)
    file.close()
    log = store.killed()
    assert read_batches(log) == batches
    assert log.segments.active.size == position
    assert store.disk.size(FOLDER / f"{0:020d}.log") == position
    cut = FOLDER / f"{0:020d}.{position}.cut"
    assert store.disk.exists(cut) == (keep > 0)
    if keep:
        assert store.memory_disk.copy_after_crash().read(cut) == tail, (
            "durable before it is cut off"
        )
        assert store.directory.recoveries["topic", 0].bytes_cut == keep


def test_a_bad_batch_above_the_recovery_point_takes_all_that_follows_aside() -> None:
    store = memory_store(SMALL)
    log = store.create()
    batches = fill(log)
    first, second = log.segments[0], log.segments[1]
    position, count = first.size - 30, len(log.segments)
    size, end = log.size, first.next_offset
    flip(store.disk, first.path(".log"), position)
    second_bytes = store.disk.read(second.path(".log"))
    log = store.killed()
    assert len(log.segments) == 1
    kept = read_batches(log)
    assert kept == batches[: len(kept)]
    assert log.log_end_offset < end
    aside = [name for name in store.disk.list(FOLDER) if name.endswith(".cut")]
    assert len(aside) == count
    assert store.disk.read(FOLDER / f"{second.base_offset:020d}.0.cut") == second_bytes
    assert store.directory.recoveries["topic", 0].bytes_cut == size - log.size
    fill(log, 3)


def test_a_bad_batch_below_the_recovery_point_takes_the_log_offline_and_stays() -> None:
    store = memory_store(SMALL)
    log = store.create()
    fill(log, 5)
    log.flush()
    store.directory.write_checkpoints()
    fill(log, 2, 5)
    content = bytearray(store.disk.read(FOLDER / f"{0:020d}.log"))
    flip(store.disk, FOLDER / f"{0:020d}.log", 100)
    content[100] ^= 0x10
    for _ in range(2):
        assert isinstance(store.disk, MemoryDisk)
        store.disk.kill()
        store.start()
        assert store.directory.logs == {}
        error = store.directory.failed["topic", 0]
        assert isinstance(error, CorruptLog)
        assert f"{0:020d}.log is corrupt at byte" in str(error)
        assert store.disk.read(FOLDER / f"{0:020d}.log") == content
    store.directory.close()
    store.start()
    assert ("topic", 0) in store.directory.failed


@pytest.mark.parametrize("clean", [True, False])
def test_durable_records_that_are_missing_take_the_log_offline(clean: bool) -> None:
    store = memory_store(SMALL)
    log = store.create()
    fill(log, 5)
    log.flush()
    size = log.segments.active.size
    store.directory.write_checkpoints()
    if clean:
        store.directory.close()
    file = store.disk.open(FOLDER / f"{0:020d}.log")
    file.truncate(size - 10)
    assert isinstance(store.disk, MemoryDisk)
    store.disk.kill()
    store.start()
    assert ("topic", 0) in store.directory.failed


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_segment_is_an_error_that_names_it(clean: bool) -> None:
    store = memory_store(SMALL)
    log = store.create()
    fill(log)
    missing = log.segments[1].path(".log")
    log.flush()
    store.directory.write_checkpoints()
    if clean:
        store.directory.close()
    store.disk.remove(missing)
    assert isinstance(store.disk, MemoryDisk)
    store.disk.kill()
    store.start()
    assert str(missing) in str(store.directory.failed["topic", 0])


def test_segments_after_a_segment_that_was_never_durable_are_set_aside() -> None:
    store = memory_store(SMALL)
    log = store.create()
    fill(log)
    first, second, *later = log.segments
    second.indexes.write()
    store.disk.remove(second.path(".log"))
    log = store.killed()
    assert log.log_end_offset == second.base_offset
    assert [segment.base_offset for segment in log.segments] == [first.base_offset]
    assert not store.disk.exists(second.path(".index"))
    aside = [name for name in store.disk.list(FOLDER) if name.endswith(".0.cut")]
    assert len(aside) == len(later)
    fill(log, 5)


def test_an_empty_segment_that_was_set_aside_does_not_come_back() -> None:
    """Its name would end the log where acknowledged batches have been written since."""
    store = Store(MemoryDisk(ManualClock(), names_in_order=False))
    assert isinstance(store.disk, MemoryDisk)
    log = store.create()
    fill(log, 2)
    log.flush()
    whole = log.segments[0].size
    fill(log, 1, 2)
    log.roll(NOW)
    store.disk.write_back()
    file = store.disk.open(log.segments[0].path(LOG))
    file.truncate(whole)
    file.sync()
    log = store.killed()
    assert len(log.segments) == 1
    assert store.directory.recoveries["topic", 0].bytes_cut == 0
    fill(log, 5)
    log.flush()
    kept, end = read_batches(log), log.log_end_offset
    store.disk.crash()
    store.start()
    assert (read_batches(store.log), store.log.log_end_offset) == (kept, end)


def test_a_batch_of_many_megabytes_survives_a_kill() -> None:
    store = memory_store(LogConfig(max_message_bytes=4 << 20))
    log = store.create()
    batches = [make_batch(1, size=size) for size in (20, 3 << 20, 20)]
    for batch in batches:
        append(log, batch)
    assert read_batches(store.killed(), max_bytes=8 << 20) == batches
    assert store.directory.recoveries["topic", 0].bytes_cut == 0


def test_a_log_that_ends_below_its_start_is_set_aside_and_counted() -> None:
    store = memory_store(SMALL)
    log = store.create()
    fill(log, 3)
    end = log.log_end_offset
    fill(log, 3, 3)
    log.advance_log_start(log.log_end_offset)
    store.directory.write_checkpoints()
    start, size = log.log_start_offset, log.segments[0].position_of(end)
    assert 0 < size < log.size == log.segments[0].size
    file = store.disk.open(log.segments[0].path(LOG))
    file.truncate(size)
    file.close()
    log = store.killed()
    assert (log.log_start_offset, log.log_end_offset, log.size) == (start, start, 0)
    recovery = store.directory.recoveries["topic", 0]
    assert (recovery.bytes_cut, recovery.segments_set_aside) == (size, 1)


@pytest.mark.parametrize("how", ["recovery", "truncation"])
def test_a_snapshot_beyond_a_cut_does_not_come_back(how: str) -> None:
    """It would speak of producers that the log does not know once it is as long again."""
    store = Store(MemoryDisk(ManualClock(), names_in_order=False))
    assert isinstance(store.disk, MemoryDisk)
    log = store.create()
    append(log, make_batch(3))
    log.flush()
    last = log.segments[0].size
    append(log, make_batch(3, producer=(7, 0, 0)))
    log.roll(NOW)
    assert log.snapshots.offsets == [6]
    store.disk.write_back()
    if how == "recovery":
        flip(store.disk, log.segments[0].path(LOG), last + 70)
        log = store.killed()
    else:
        log.truncate_to(3)
    assert log.log_end_offset == 3
    store.disk.crash()
    assert not store.disk.exists(FOLDER / "00000000000000000006.snapshot")


def damage(disk: Disk, path: Path, how: str) -> None:
    file = disk.open(path)
    size = file.size()
    match how:
        case "zero":
            file.write_at(0, bytes(size))
        case "empty":
            file.truncate(0)
        case "half":
            file.truncate(size // 2 + 3)
        case "garbage":
            file.write_at(size, b"garbage")
        case "remove":
            disk.remove(path)
        case _:
            position = int(how)
            file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 0x04]))
    file.close()


DAMAGE = ["zero", "empty", "half", "garbage", "remove", "3", "7", "11", "17", "23", "30"]


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_whatever_happens_to_an_index_reads_are_the_same(
    how: str, suffix: str, clean: bool
) -> None:
    store = memory_store(SMALL)
    log = store.create()
    fill(log, 80)
    expected = _all_reads()
    paths = [segment.path(suffix) for segment in log.segments]
    store.directory.close()
    for path in paths:
        size = store.disk.size(path)
        if not how.isdecimal() or int(how) < size:
            damage(store.disk, path, how)
    if not clean:
        store.disk.remove(DATA / ".kafka_cleanshutdown")
    log = store.start().logs["topic", 0]
    assert _reads(log) == expected
    fill(log, 5)


@cache
def _all_reads() -> tuple[object, ...]:
    """The reads of the undamaged log; the same for each damage."""
    log = memory_store(SMALL).create()
    fill(log, 80)
    return _reads(log)


def _reads(log: Log) -> tuple[object, ...]:
    times = range(NOW - 5, NOW + 81 * 10, 3)
    batches = [read_batches(log, offset)[0] for offset in range(log.log_end_offset)]
    return batches, [record_at(log, time) for time in times], newest_record(log)


@pytest.mark.parametrize("content", [b"", b"0\n2\n1 0\n", b"0\n1\n3 x\n", b"\xff", b"1\n0\n"])
def test_leader_epochs_are_made_again_from_the_log(content: bytes) -> None:
    store = memory_store(SMALL)
    log = store.create()
    for epoch in (1, 1, 4, 6):
        log.append(make_batch(2), leader_epoch=epoch, now_ms=NOW)
    store.directory.close()
    store.disk.write_atomic(FOLDER / "leader-epoch-checkpoint", content)
    log = store.start().logs["topic", 0]
    assert log.leader_epochs.entries == [(1, 0), (4, 4), (6, 6)]


def test_offsets_go_on_after_a_log_was_emptied() -> None:
    store = memory_store(LogConfig(segment_bytes=2000, retention_ms=1000))
    log = store.create()
    fill(log)
    end = log.log_end_offset
    log.delete_old_segments(NOW + 10_000_000)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (end, end, 0)
    for _ in range(2):
        log = store.restart()
        assert (log.log_start_offset, log.log_end_offset) == (end, end)
    log = store.killed()
    assert (log.log_start_offset, log.log_end_offset) == (end, end)
    assert append(log, make_batch()) == end


def test_a_start_beyond_a_lost_tail_begins_again_there() -> None:
    store = memory_store()
    log = store.create()
    fill(log, 10)
    end = log.log_end_offset
    log.advance_log_start(end)
    store.directory.write_checkpoints()
    store.disk.sync_dir(DATA)
    store.disk.sync_dir(FOLDER)
    assert isinstance(store.disk, MemoryDisk)
    file = store.disk.open(FOLDER / f"{0:020d}.log")
    file.truncate(70)
    store.disk.kill()
    store.start()
    assert (store.log.log_start_offset, store.log.log_end_offset) == (end, end)
    assert append(store.log, make_batch()) == end
    assert any(name.endswith(".cut") for name in store.disk.list(FOLDER))


def test_a_store_on_another_disk_sees_the_same(tmp_path: Path) -> None:
    store = Store(PosixDisk(), config=SMALL, path=tmp_path)
    batches = fill(store.create())
    assert read_batches(store.restart()) == batches
    store.directory.close(clean=False)
    store.start()
    assert read_batches(store.log) == batches


def raise_offset(disk: Disk, path: Path, position: int) -> None:
    """Of the batch at `position`; no checksum covers it."""
    flip(disk, path, position + 5)


def test_an_offset_that_was_raised_below_the_recovery_point_cuts_nothing() -> None:
    """Its successor, whose offset is then too low, is not where the log may be cut."""
    store = memory_store(SMALL)
    log = store.create()
    fill(log, 5)
    log.flush()
    store.directory.write_checkpoints()
    path = log.segments.active.path(LOG)
    raise_offset(store.disk, path, 0)
    content = store.disk.read(path)
    assert isinstance(store.disk, MemoryDisk)
    store.disk.kill()
    store.start()
    assert ("topic", 0) in store.directory.failed
    assert store.disk.read(path) == content


@pytest.mark.parametrize("raised", [1, 2])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_offsets_that_were_raised_above_the_recovery_point_are_cut_off(
    policy: str, raised: int
) -> None:
    """Each of the two agrees with the other; only the batch after them shows the error."""
    store = memory_store(SMALL._replace(cleanup_policy=frozenset({policy})))
    log = store.create()
    batches = fill(log, 5)
    for number in range(1, 1 + raised):
        position = sum(map(len, batches[:number]))
        raise_offset(store.disk, log.segments.active.path(LOG), position)
    assert read_batches(store.killed()) == batches[:1]


def test_the_offset_of_the_last_batch_must_follow_in_a_log_that_was_never_compacted() -> None:
    store = memory_store(SMALL)
    log = store.create()
    batches = fill(log, 3)
    raise_offset(store.disk, log.segments.active.path(LOG), len(batches[0]) + len(batches[1]))
    log = store.killed()
    assert read_batches(log) == batches[:2]
    assert log.log_end_offset == 3


def test_the_last_offset_of_a_closed_segment_is_below_the_next_segment() -> None:
    store = memory_store(SMALL)
    log = store.create()
    fill(log)
    first = log.segments[0]
    position, in_first = 0, []
    for batch in read_batches(log):
        if position == first.size:
            break
        in_first.append(batch)
        position += len(batch)
    raise_offset(store.disk, first.path(LOG), position - len(in_first[-1]))
    assert read_batches(store.killed()) == in_first[:-1]


def test_a_scan_restores_the_leader_epochs_of_its_batches() -> None:
    """Their file has no checksum. With a wrong epoch, readers would report damage."""
    store = memory_store(SMALL)
    log = store.create()
    log.assign_epoch(3)
    fill(log, 2)
    begins = log.log_end_offset
    log.assign_epoch(4)
    append(log, make_batch(5), leader_epoch=4)
    log.write_epochs()
    path = FOLDER / LEADER_EPOCHS
    told = store.disk.read(path)
    store.disk.write_atomic(path, told.replace(b"4 %d" % begins, b"4 1"))
    log = store.killed()
    assert log.leader_epochs.entries == [(3, 0), (4, begins)]
    log.flush()
    assert store.disk.read(path) == told


def test_a_damaged_batch_does_not_change_leader_epochs_below_the_recovery_point() -> None:
    """The segment is scanned for later batches; no checksum covers the epoch of a batch."""
    store = memory_store()
    log = store.create()
    batches = [make_batch() for _ in range(2)]
    for batch in batches:
        append(log, batch, leader_epoch=3)
    log.flush()
    store.directory.write_checkpoints()
    log.assign_epoch(4)
    append(log, make_batch(), leader_epoch=4)
    position = len(batches[0]) + 12
    bit = 8 * (position + 3)
    assert isinstance(store.disk, MemoryDisk)
    store.disk.flip(log.segments.active.path(LOG), bit + 2)  # 3 becomes 7
    assert store.killed().leader_epochs.entries == [(3, 0), (4, 2)]


def test_the_recovery_point_of_a_deleted_topic_does_not_apply_to_its_namesake() -> None:
    store = memory_store()
    old = store.create()
    fill(old, 4)
    old.flush()
    store.directory.write_checkpoints()
    store.directory.schedule_delete(old)
    again = b"another-topic-id"
    store.known = {again}
    batches = fill(create_log(store.directory, "topic", 0, again, store.config), 2)
    log = store.killed()
    assert read_batches(log) == batches
    assert log.recovery_point == 0


def test_up_to_where_a_deleted_topic_was_compacted_is_not_believed_of_its_namesake() -> None:
    store = memory_store()
    old = store.create()
    fill(old, 4)
    old.flush()
    store.directory.cleaner_offsets["topic", 0] = old.log_end_offset
    store.directory.write_checkpoints({("topic", 0): old.log_end_offset})
    store.directory.schedule_delete(old)
    again = b"another-topic-id"
    store.known = {again}
    fill(create_log(store.directory, "topic", 0, again, store.config), 2)
    store.killed()
    assert not store.directory.cleaner_offsets
    assert not store.directory.high_watermarks


@pytest.mark.parametrize("torn", ["zeros", "cut", "old bytes"])
def test_a_torn_batch_behind_a_gap_is_not_blamed_on_the_batch_before_it(torn: str) -> None:
    """After a compaction, with a torn batch at the end."""
    store = memory_store(SMALL._replace(cleanup_policy=frozenset({"compact"})))
    log = store.create()
    batches = fill(log, 5)
    log.flush()
    store.directory.write_checkpoints()
    kept = [batches[0], batches[4]]
    tail = {
        "zeros": bytes(200),
        "cut": bytes(make_batch(3))[:100],
        "old bytes": bytes(make_batch(3))[:-1] + b"?",
    }[torn]
    store.disk.write_atomic(log.segments.active.path(LOG), b"".join(kept) + tail)
    assert read_batches(store.killed()) == kept
