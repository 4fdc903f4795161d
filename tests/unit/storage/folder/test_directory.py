"""The data folder: its owner, its logs, and their checkpoints."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from doubles.disk_faults import Operation
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.checkpoint import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, decode_offsets
from lakelog.storage.errors import LoadInterrupted
from lakelog.storage.folder.directory import STRAY_KEPT_DAYS, LogDirectory
from storage_kit import (
    DATA,
    NOW,
    TOPIC_ID,
    ManualClock,
    Store,
    append,
    make_batch,
    memory_store,
    read_batches,
)

FOLDER = DATA / "topic-0"


def make_directory(disk: MemoryDisk | PosixDisk, path: Path = DATA, seed: int = 5) -> LogDirectory:
    return LogDirectory(path, disk, ManualClock(), SeededRandom(seed))


def test_an_unknown_topic_becomes_stray_and_stays() -> None:
    store = memory_store()
    batches = [make_batch(2) for _ in range(3)]
    log = store.create()
    for batch in batches:
        append(log, batch)
    store.directory.close()
    store.known = set()
    for _ in range(2):
        assert store.start().logs == {}
        stray = [name for name in store.disk.list(DATA) if name.endswith("-stray")]
        assert len(stray) == 1
        assert store.disk.read(DATA / stray[0] / f"{0:020d}.log") == b"".join(batches)
        store.directory.deletions.purge(NOW + 1_000_000_000)
        store.directory.close()
    store.known = {TOPIC_ID}
    store.start()
    assert store.create().log_end_offset == 0


def strays(store: Store) -> list[str]:
    return [name for name in store.disk.list(DATA) if name.endswith("-stray")]


def test_a_stray_directory_is_due_after_seven_days_however_often_the_broker_starts() -> None:
    store = memory_store()
    append(store.create(), make_batch())
    store.directory.close()
    store.known = set()
    due_ms = store.clock.now_ms + STRAY_KEPT_DAYS * 86_400_000
    for _ in range(3):
        store.start()
        (name,) = strays(store)
        assert store.directory.strays.due(due_ms - 1) == []
        store.directory.close()
        store.clock.now_ms += 86_400_000
    store.start()
    assert store.directory.strays.due(due_ms) == [DATA / name]


@pytest.mark.parametrize("age_ms", [None, -1])
def test_a_stray_directory_without_a_past_time_is_kept_from_now_on(age_ms: int | None) -> None:
    """An earlier version drew all digits, and a clock may have been ahead."""
    store = memory_store()
    now_ms = store.clock.now_ms
    digits = "f" * 12 if age_ms is None else f"{now_ms - age_ms:012x}"
    store.disk.make_dirs(DATA / f"a.b-1.{digits}{'0' * 20}-stray")
    store.directory.close()
    store.start()
    assert strays(store) == [f"a.b-1.{now_ms:012x}{'0' * 20}-stray"]
    assert store.directory.strays.due(now_ms + 1) == []


@pytest.mark.parametrize("name", ["photos-2024", "photos-stray"])
def test_a_directory_of_another_program_stays_as_it_is(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Only its name is that of a log, or of a stray one, which would be removed."""
    store = memory_store()
    store.disk.make_dirs(DATA / name)
    store.disk.write_atomic(DATA / name / "cat.jpg", b"cat")
    store.directory.close()
    store.clock.now_ms += (STRAY_KEPT_DAYS + 1) * 86_400_000
    store.start()
    assert store.disk.read(DATA / name / "cat.jpg") == b"cat"
    assert strays(store) == [name][: name.endswith("-stray")]
    assert store.directory.strays.due(store.clock.now_ms + STRAY_KEPT_DAYS * 86_400_000) == []
    assert store.directory.failed == {}
    (line,) = [each for each in caplog.records if "stays as it is" in each.getMessage()]
    assert name in line.getMessage()


def test_an_empty_directory_of_a_broken_off_creation_makes_room() -> None:
    store = memory_store()
    store.disk.make_dirs(FOLDER)
    store.directory.close()
    store.start()
    assert store.directory.failed == {}
    assert append(store.create(), make_batch()) == 0


def test_a_new_log_does_not_inherit_the_recovery_point_of_a_stray_one() -> None:
    store = memory_store()
    append(store.create(), make_batch(3))
    store.log.flush()
    store.directory.write_checkpoints()
    store.directory.logs.clear()
    store.known = set()
    store.memory_disk.kill()
    store.start()
    store.known = {TOPIC_ID}
    assert store.create().log_end_offset == 0
    store.killed()
    assert store.directory.failed == {}


def test_creation_that_broke_off_is_completed() -> None:
    finished = False
    stop = 0
    while not finished:
        store = memory_store()
        assert isinstance(store.disk, MemoryDisk)
        store.disk.stop_at = store.disk.steps + stop
        try:
            store.create()
            finished = True
        except Exception:  # noqa: BLE001 - wherever it stops
            pass
        store.memory_disk.kill()
        store.start()
        assert store.directory.failed == {}
        log = store.directory.logs.get(("topic", 0)) or store.create()
        assert append(log, make_batch()) == 0
        stop += 1
    assert stop > 5


def test_a_directory_that_exists_is_not_created_again() -> None:
    store = memory_store()
    store.create()
    with pytest.raises(FileExistsError):
        store.create()


def test_deleted_logs_are_renamed_now_and_removed_later() -> None:
    store = memory_store(LogConfig(file_delete_delay_ms=500))
    log = store.create()
    append(log, batch := make_batch())
    found = log.read(0, 1000, end_offset=1)
    store.directory.schedule_delete(log)
    assert store.directory.logs == {}
    name = next(name for name in store.disk.list(DATA) if name.endswith("-delete"))
    assert name.startswith("topic-0.")
    assert len(name) == len("topic-0.-delete") + 32
    assert found is not None
    assert found.read() == batch
    found.release()
    assert store.directory.deletions.purge(NOW + 499) == 0
    assert store.directory.deletions.purge(NOW + 500) == 1
    assert not store.disk.exists(DATA / name)


def test_a_long_topic_name_fits_into_the_name_of_the_deleted() -> None:
    store = memory_store()
    log = store.create("t" * 249, 12345)
    store.directory.schedule_delete(log)
    name = next(name for name in store.disk.list(DATA) if name.endswith("-delete"))
    assert len(name) == 255


def test_deletion_is_resumed_after_a_kill() -> None:
    store = memory_store()
    store.directory.schedule_delete(store.create())
    store.memory_disk.kill()
    store.start()
    assert store.directory.logs == {}
    assert store.directory.deletions.purge(NOW) == 1
    assert [n for n in store.disk.list(DATA) if n.endswith("-delete")] == []


def test_the_same_partition_may_be_created_while_the_old_one_is_being_removed() -> None:
    store = memory_store()
    append(store.create(), make_batch(5))
    store.directory.schedule_delete(store.log)
    assert append(store.create(), make_batch()) == 0
    store.directory.deletions.purge(NOW + 1_000_000)
    assert len(read_batches(store.restart())) == 1


def test_checkpoints_say_where_logs_are() -> None:
    store = memory_store()
    log, other = store.create(), store.create(partition=1)
    append(log, make_batch(5))
    log.flush()
    log.advance_log_start(2)
    append(log, make_batch(1))
    append(other, make_batch(1))
    store.directory.write_checkpoints({("topic", 0): 6, ("topic", 1): 1})

    def lines(name: str) -> list[str]:
        return store.disk.read(DATA / f"{name}-offset-checkpoint").decode().split("\n")

    assert lines("recovery-point") == ["0", "2", "topic 0 5", "topic 1 0", ""]
    assert lines("log-start") == ["0", "1", "topic 0 2", ""]
    assert lines("replication") == ["0", "2", "topic 0 6", "topic 1 1", ""]
    assert lines("cleaner") == ["0", "0", ""]
    log = store.killed()
    assert log.log_start_offset == 2
    assert store.directory.high_watermarks == {("topic", 0): 6, ("topic", 1): 1}


@pytest.mark.parametrize("begins_again", [False, True])
def test_a_truncation_lowers_the_end_of_the_compacted_part(begins_again: bool) -> None:
    """Records that follow it have never been compacted, and a kill does not hide that."""
    store = memory_store()
    log = store.create()
    for _ in range(4):
        append(log, make_batch(2))
    log.flush()
    store.directory.cleaner_offsets["topic", 0] = 6
    log.restart_at(4) if begins_again else log.truncate_to(4)
    for _ in range(4):
        append(log, make_batch(2))
    assert store.directory.cleaner_offsets == {("topic", 0): 4}
    store.killed()
    assert store.directory.cleaner_offsets == {("topic", 0): 4}


def test_checkpoints_keep_the_entries_of_an_offline_log() -> None:
    store = memory_store()
    log, other = store.create(), store.create(partition=1)
    for each in (log, other):
        append(each, make_batch(5))
        each.advance_log_start(2)
        each.flush()
    store.directory.write_checkpoints({("topic", 0): 5, ("topic", 1): 5})
    store.memory_disk.kill()
    store.disk.remove(other.folder / "partition.metadata")
    store.start()
    assert list(store.directory.failed) == [("topic", 1)]
    append(store.log, make_batch(1))
    store.directory.write_checkpoints({("topic", 0): 6})
    for name, expected in (
        (HIGH_WATERMARKS, [6, 5]),
        (RECOVERY_POINTS, [5, 5]),
        (LOG_STARTS, [2, 2]),
    ):
        found = decode_offsets(store.disk.read(DATA / name))
        assert [found["topic", 0], found["topic", 1]] == expected, name


def test_a_damaged_checkpoint_costs_a_scan_and_nothing_else() -> None:
    store = memory_store()
    log = store.create()
    for _ in range(5):
        append(log, make_batch())
    batches = read_batches(log)
    log.flush()
    store.directory.write_checkpoints()
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        store.disk.write_atomic(DATA / f"{name}-offset-checkpoint", b"0\n1\ntopic zero\n")
    assert read_batches(store.killed()) == batches


def test_checkpoints_that_could_not_be_written_are_written_again() -> None:
    store = memory_store()
    append(store.create(), make_batch())
    store.log.flush()
    assert isinstance(store.disk, MemoryDisk)
    store.disk.fail("write", errno.ENOSPC, suffix=".tmp")
    with pytest.raises(OSError):
        store.directory.write_checkpoints()
    store.directory.write_checkpoints()
    data = store.disk.read(DATA / "recovery-point-offset-checkpoint")
    assert data == b"0\n1\ntopic 0 1\n"


@pytest.mark.parametrize("failing", ["write", "sync"])
def test_a_log_whose_device_failed_is_not_closed_cleanly(failing: str) -> None:
    store = memory_store()
    append(store.create(), make_batch())
    append(store.create(partition=1), make_batch())
    disk, log = store.disk, store.log
    assert isinstance(disk, MemoryDisk)
    disk.fail("sync" if failing == "sync" else "write", errno.EIO, suffix=".log")
    with pytest.raises(OSError):
        if failing == "sync":
            log.flush()
        else:
            append(log, make_batch())
    assert log.broken
    store.directory.close()
    store.start()
    assert not store.directory.clean
    assert store.directory.recoveries["topic", 0].segments_scanned == 1
    assert store.log.recovery_point == 0


def test_an_idle_folder_of_many_logs_keeps_few_files_open() -> None:
    store = Store(MemoryDisk(ManualClock()), max_open=4)
    for partition in range(20):
        append(store.create(partition=partition), make_batch())
    assert len(store.directory.handles) <= 4
    store.restart()
    for log in store.directory.logs.values():
        assert len(read_batches(log)) == 1
        append(log, make_batch())
    assert len(store.directory.handles) <= 4


def test_a_log_that_is_offline_can_be_deleted() -> None:
    store = memory_store()
    append(store.create(), make_batch())
    store.directory.close()
    store.disk.remove(FOLDER / "partition.metadata")
    store.start()
    store.directory.schedule_delete_failed("topic", 0, store.config)
    assert store.directory.failed == {}
    assert append(store.create(), make_batch()) == 0
    assert store.directory.deletions.purge(NOW + 60_000) == 1
    store.restart()
    assert store.directory.clean


class InterruptingDisk(MemoryDisk):
    """Calls `interrupt` at the `after`-th read of a segment."""

    interrupt: Callable[[], None] | None = None
    after = 0
    reads = 0

    def step(self, operation: Operation, path: Path):  # type: ignore[no-untyped-def]
        if operation == "read" and path.name.endswith(".log"):
            self.reads += 1
            if self.interrupt is not None and self.reads == self.after:
                self.interrupt()
        return super().step(operation, path)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_recovery_that_is_interrupted_ends_soon_and_is_repeated(after: int) -> None:
    disk = InterruptingDisk(ManualClock())
    store = Store(disk)
    append(store.create(), make_batch(1))
    store.log.flush()
    for _ in range(6):
        append(store.log, make_batch(1, size=1_000_000))
    batches = read_batches(store.log)
    store.directory.write_checkpoints()
    disk.kill()
    directory = make_directory(disk, seed=8)
    directory.open(None, 1)
    disk.reads, disk.after, disk.interrupt = 0, after, directory.interrupt
    if not after:
        directory.interrupt()
    with pytest.raises(LoadInterrupted):
        directory.load_logs(lambda topic, topic_id: LogConfig(), {TOPIC_ID})
    assert disk.reads == after
    disk.interrupt = None
    directory.close()
    assert not disk.exists(DATA / ".kafka_cleanshutdown")
    assert disk.read(DATA / "recovery-point-offset-checkpoint") == b"0\n1\ntopic 0 1\n"
    store.start()
    assert read_batches(store.log) == batches
    assert store.directory.recoveries["topic", 0].bytes_cut == 0


def test_a_start_that_is_interrupted_is_as_clean_as_the_last_stop() -> None:
    store = memory_store()
    append(store.create(), make_batch())
    append(store.create(partition=1), make_batch())
    store.directory.close()
    directory = make_directory(store.disk, seed=8)  # type: ignore[arg-type]
    directory.open(None, 1)

    def interrupt_at_the_second(topic: str, topic_id: bytes) -> LogConfig:
        directory.interrupt()
        return LogConfig()

    with pytest.raises(LoadInterrupted):
        directory.load_logs(interrupt_at_the_second, {TOPIC_ID})
    assert len(directory.logs) == 1
    directory.close()
    assert store.start().clean
    assert [log.recovery_point for log in store.directory.logs.values()] == [1, 1]


def test_a_stop_before_the_logs_were_loaded_changes_nothing() -> None:
    store = memory_store()
    append(store.create(), make_batch())
    store.directory.close()
    early = make_directory(store.disk, seed=8)  # type: ignore[arg-type]
    early.open(None, 1)
    early.close()
    store.start()
    assert store.directory.clean
    assert store.log.recovery_point == 1
