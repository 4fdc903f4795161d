"""The data folder: its owner, its logs, and their checkpoints."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.checkpoint import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    decode_offsets,
)
from lakelog.storage.errors import DirectoryInUse, LoadInterrupted, WrongDirectory
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.folder.known_logs import KNOWN_LOGS
from lakelog.testing.disk import MemoryDisk
from lakelog.testing.disk_faults import Operation
from lakelog.testing.randomness import SeededRandom
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


def test_a_new_folder_gets_an_identity_that_stays() -> None:
    disk = MemoryDisk(ManualClock())
    directory = make_directory(disk)
    directory.open("cluster-a", 3)
    meta = directory.meta
    assert (meta.cluster_id, meta.node_id) == ("cluster-a", 3)
    directory.load_logs(lambda topic, topic_id: LogConfig(), ())
    directory.close()
    again = make_directory(disk, seed=6)
    again.open(None, 3)
    assert again.meta == meta
    assert again.clean


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "reason"),
    [("cluster-b", 3, "belongs to cluster cluster-a"), ("cluster-a", 4, "belongs to node 3")],
)
def test_the_folder_of_another_refuses(cluster_id: str, node_id: int, reason: str) -> None:
    disk = MemoryDisk(ManualClock())
    directory = make_directory(disk)
    directory.open("cluster-a", 3)
    directory.close()
    other = make_directory(disk)
    for _ in range(2):
        with pytest.raises(WrongDirectory, match=reason):
            other.open(cluster_id, node_id)
    other.open("cluster-a", 3)


@pytest.mark.parametrize(
    "content", [b"", b"version=0\n", b"version=1\nnode.id=x\ncluster.id=a\n", b"\xff"]
)
def test_a_damaged_identity_refuses(content: bytes) -> None:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    disk.write_atomic(DATA / "meta.properties", content)
    with pytest.raises(WrongDirectory, match=r"meta\.properties cannot be used"):
        make_directory(disk).open(None, 1)


def test_a_new_folder_survives_a_power_failure_with_its_parents() -> None:
    disk = MemoryDisk(ManualClock(), names_in_order=False)
    folder = Path("/srv/lakelog/data")
    directory = LogDirectory(folder, disk, ManualClock(), SeededRandom(1))
    directory.open(None, 1)
    cluster_id = directory.cluster_id
    disk.crash()
    again = LogDirectory(folder, disk, ManualClock(), SeededRandom(2))
    again.open(None, 1)
    assert again.cluster_id == cluster_id


def test_what_kafka_writes_in_meta_properties_is_understood() -> None:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA)
    text = (
        "#\n#Sat Nov 21 02:07:29 UTC 2026\ncluster.id=abc\nversion=1\n"
        "directory.id=EBESExQVFhcYGRobHB0eHw\nnode.id=1\n"
    )
    disk.write_atomic(DATA / "meta.properties", text.encode())
    directory = make_directory(disk)
    directory.open("abc", 1)
    assert directory.meta.directory_id == bytes(range(16, 32))


def test_logs_without_an_identity_are_not_taken_over() -> None:
    store = memory_store()
    store.create()
    store.directory.close()
    store.disk.remove(DATA / "meta.properties")
    with pytest.raises(WrongDirectory, match=r"no meta\.properties"):
        store.start()


@pytest.mark.parametrize("kind", ["memory", "posix"])
def test_a_folder_is_used_by_one(kind: str, tmp_path: Path) -> None:
    disk = MemoryDisk(ManualClock()) if kind == "memory" else PosixDisk()
    path = tmp_path / "data"
    first, second = make_directory(disk, path), make_directory(disk, path)
    first.open(None, 1)
    with pytest.raises(DirectoryInUse, match="in use by another process"):
        second.open(None, 1)
    first.close()
    second.open(None, 1)
    second.close()


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


@pytest.mark.parametrize("data", [None, b"", b"version: 0\ntopic_id: short"])
def test_a_log_whose_topic_id_is_lost_is_offline_not_stray(data: bytes | None) -> None:
    store = memory_store()
    append(store.create(), make_batch())
    store.directory.close()
    if data is None:
        store.disk.remove(FOLDER / "partition.metadata")
    else:
        store.disk.write_atomic(FOLDER / "partition.metadata", data)
    store.start()
    assert "partition.metadata is corrupt" in str(store.directory.failed["topic", 0])
    assert store.disk.exists(FOLDER / f"{0:020d}.log")


def test_an_empty_directory_of_a_broken_off_creation_makes_room() -> None:
    store = memory_store()
    store.disk.make_dirs(FOLDER)
    store.directory.close()
    store.start()
    assert store.directory.failed == {}
    assert append(store.create(), make_batch()) == 0


@pytest.mark.parametrize("data", [b"", b"\0" * 43])
def test_a_new_log_whose_topic_id_was_lost_with_the_power_makes_room(data: bytes) -> None:
    store = memory_store()
    store.create()
    store.disk.write_atomic(FOLDER / "partition.metadata", data)
    store.memory_disk.kill()
    store.start()
    assert store.directory.failed == {}
    assert append(store.create(), make_batch()) == 0


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_log_whose_topic_id_was_lost_with_the_power_makes_room_if_it_never_was_durable(
    is_durable: bool,
) -> None:
    store = memory_store()
    append(store.create(), make_batch())
    if is_durable:
        store.log.flush()
        store.directory.write_checkpoints()
        store.disk.remove(DATA / KNOWN_LOGS)
    store.disk.write_atomic(FOLDER / "partition.metadata", b"\0" * 43)
    store.memory_disk.kill()
    directory = LogDirectory(DATA, store.disk, store.clock, SeededRandom(1))
    directory.open(None, 1)
    assert directory.load_logs(lambda *_: LogConfig(), {TOPIC_ID}, lambda _: TOPIC_ID) == {}
    assert set(directory.failed) == ({("topic", 0)} if is_durable else set())
    if not is_durable:
        assert append(directory.create_log("topic", 0, TOPIC_ID, LogConfig()), make_batch()) == 0
        (stray,) = [name for name in store.disk.list(DATA) if name.endswith("-stray")]
        assert store.disk.size(DATA / stray / f"{0:020d}.log")


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


def test_an_emptied_log_whose_topic_id_is_lost_does_not_begin_again() -> None:
    store = memory_store(LogConfig(retention_ms=1))
    append(store.create(), make_batch(), now_ms=NOW)
    assert store.log.delete_old_segments(NOW + 100_000) == 1
    store.directory.close()
    store.disk.remove(FOLDER / "partition.metadata")
    store.start()
    assert "partition.metadata is corrupt" in str(store.directory.failed["topic", 0])


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
