"""`known-logs` and the files it vouches for: whichever is damaged, the logs are as they were."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.base.uuids import encode_uuid
from lakelog.records import crc
from lakelog.runtime.api import Disk
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.checkpoint import KnownLog, LogFiles, MalformedCheckpoint
from lakelog.storage.files import PARTITION_METADATA
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.folder.identity import topic_id_in
from lakelog.storage.folder.known_logs import (
    KNOWN_LOGS,
    FilesOfLogs,
    decode_known_logs,
    known_logs_file,
)
from lakelog.storage.marks import FOLDER_SEAL, FolderSeal
from storage_kit import DATA, TOPIC_ID, ManualClock, Store, append, make_batch, memory_store

KNOWN = {
    ("a", 0): KnownLog(
        TOPIC_ID, 7, 3, 9, 5, ((0, 3), (4, 6)), ((3, 77),), LogFiles("12 34", 3, 56)
    ),
    ("b-1", 2): KnownLog(TOPIC_ID, 0),
}


def test_it_is_read_as_it_was_written() -> None:
    assert decode_known_logs(known_logs_file().encode(KNOWN)) == KNOWN
    assert decode_known_logs(known_logs_file().encode({})) == {}


def test_version_1_has_no_files() -> None:
    rows = b'["a",0,"%s",7,3,9,5,[[0,3],[4,6]],[[3,77]]]\n' % encode_uuid(TOPIC_ID).encode()
    data = b"lakelog known-logs 1 %08x\n" % crc.crc32c(rows) + rows
    assert decode_known_logs(data) == {("a", 0): KNOWN["a", 0]._replace(files=None)}


def test_every_flipped_bit_and_every_cut_is_found() -> None:
    data = known_logs_file().encode(KNOWN)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedCheckpoint):
            decode_known_logs(bytes(damaged))
    for size in range(len(data)):
        with pytest.raises(MalformedCheckpoint):
            decode_known_logs(data[:size])


def _stopped() -> Store:
    store = memory_store()
    log = store.create()
    for epoch in (1, 2):
        for _ in range(5):
            append(log, make_batch(1), leader_epoch=epoch)
    log.advance_log_start(3)
    store.directory.close()
    return store


def _write(disk: Disk, path: Path, data: bytes) -> None:
    disk.write_atomic(path, data)


@pytest.mark.parametrize(
    "name",
    [
        KNOWN_LOGS,
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "topic-0/leader-epoch-checkpoint",
    ],
)
@pytest.mark.parametrize("how", ["other digits", "emptied"])
def test_whichever_file_is_damaged(name: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    store = _stopped()
    path = DATA / name
    before = store.disk.read(path)
    after = before[:-2] + b"9\n" if how == "other digits" else b""
    _write(store.disk, path, after)
    with caplog.at_level(logging.WARNING):
        log = store.start().logs["topic", 0]
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (3, 10, 10)
    assert log.leader_epochs.entries == [(1, 3), (2, 5)]
    assert path.name in caplog.text or before == after
    store.directory.close()
    assert store.disk.read(path) == before


class TestTopicIds:
    folder = DATA / "topic-0"
    path = folder / "partition.metadata"

    def test_an_id_that_is_nearly_the_topic_s_is_the_topic_s(self) -> None:
        store = _stopped()
        before = store.disk.read(self.path)
        _write(store.disk, self.path, before[:-3] + b"x" + before[-2:])
        assert topic_id_in(store.disk, self.folder, None, TOPIC_ID) == TOPIC_ID
        assert store.disk.read(self.path) == before

    def test_a_readable_topic_id_is_returned_even_if_it_differs(self) -> None:
        store = _stopped()
        other = bytes(range(100, 116))
        assert topic_id_in(store.disk, self.folder, TOPIC_ID, other) == TOPIC_ID

    def test_an_unreadable_file_is_rewritten_if_two_other_sources_agree(self) -> None:
        store = _stopped()
        before = store.disk.read(self.path)
        _write(store.disk, self.path, bytes(len(before)))
        assert topic_id_in(store.disk, self.folder, TOPIC_ID, TOPIC_ID) == TOPIC_ID
        assert store.disk.read(self.path) == before


KEY = ("topic", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A log with a checkpoint, an online copy of its folder, and three more records."""
    clock, config = ManualClock(), LogConfig(segment_bytes=4_000)
    store = Store(PosixDisk(), clock, config, tmp_path / "data")
    append(store.create(), make_batch(5))
    store.directory.write_checkpoints({KEY: 5})
    shutil.copytree(store.log.folder, tmp_path / "copy")
    append(store.log, make_batch(3))
    store.directory.ownership.trust_page_cache()
    yield store
    store.directory.close(clean=False)


def kill(store: Store) -> None:
    """End the process: the lock is free, and nothing is written."""
    store.directory.close(clean=False)


def put_back_folder(folder: Path, copy: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def put_back_with_the_former_one_kept(folder: Path, copy: Path) -> None:
    folder.rename(copy.with_name("kept"))
    shutil.copytree(copy, folder)


def write_over_all_files(folder: Path, copy: Path) -> None:
    """As `cp -a` does, into the same inodes."""
    for path in copy.iterdir():
        shutil.copy2(path, folder / path.name)


def put_back_segment(folder: Path, copy: Path) -> None:
    """As rsync does, which skips equal files."""
    for path in copy.glob("*.log"):
        shutil.copy2(path, folder / ".received")
        (folder / ".received").replace(folder / path.name)


PUT_BACK = [
    put_back_folder,
    put_back_with_the_former_one_kept,
    write_over_all_files,
    put_back_segment,
]


@pytest.mark.parametrize("put_back", PUT_BACK)
def test_files_that_were_put_back_from_an_online_copy_are_noticed(
    store: Store, put_back: Callable[[Path, Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    kill(store)
    put_back(store.path / "topic-0", store.path.with_name("copy"))
    store.start()
    assert store.log.log_end_offset == 5, "not below the high watermark on the disk"
    assert store.directory.keeps_page_cache
    assert store.directory.recoveries[KEY].may_have_lost
    assert store.directory.has_lost
    assert "topic-0 has other files than at its last checkpoint" in caplog.text


def test_and_do_not_count_again_once_the_loss_is_noted(store: Store) -> None:
    kill(store)
    put_back_folder(store.path / "topic-0", store.path.with_name("copy"))
    store.start()
    store.directory.ownership.trust_page_cache()
    kill(store)
    store.start()
    assert not store.directory.has_lost


def test_a_start_that_is_killed_before_it_has_noted_the_loss_forgets_nothing(store: Store) -> None:
    kill(store)
    put_back_folder(store.path / "topic-0", store.path.with_name("copy"))
    store.start()
    kill(store)
    store.start()
    assert store.directory.has_lost


def truncate(store: Store) -> None:
    store.log.truncate_to(5)


def restart_log(store: Store) -> None:
    store.log.restart_at(100)


def roll(store: Store) -> None:
    for _ in range(3):
        append(store.log, make_batch(100))
    assert len(store.log.segments) > 1


def roll_and_remove(store: Store) -> None:
    roll(store)
    store.log.advance_log_start(store.log.segments.active.base_offset)
    store.log.segments.delete_first(0)


def replace_rolled_segment(store: Store) -> None:
    """As a compaction does, with a file of its own."""
    roll(store)
    path = store.log.folder / f"{0:020}.log"
    shutil.copy2(path, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize(
    "change", [truncate, restart_log, roll, roll_and_remove, replace_rolled_segment]
)
def test_the_changes_of_the_broker_itself_lose_nothing(
    store: Store, change: Callable[[Store], None], caplog: pytest.LogCaptureFixture
) -> None:
    change(store)
    kill(store)
    store.start()
    assert not store.directory.has_lost
    assert "other files" not in caplog.text


def test_nor_does_a_kill_alone_at_any_time(store: Store) -> None:
    for _ in range(3):
        kill(store)
        store.start()
        assert not store.directory.has_lost
        store.directory.ownership.trust_page_cache()
        append(store.log, make_batch(100))


def test_a_folder_may_be_moved_after_a_clean_stop(store: Store) -> None:
    store.directory.close()
    shutil.move(store.path, store.path.with_name("former"))
    shutil.copytree(store.path.with_name("former"), store.path)
    store.start()
    assert not store.directory.has_lost
    store.directory.ownership.trust_page_cache()
    kill(store)
    store.start()
    assert not store.directory.has_lost, "the start has noted the new files"


def test_a_topic_id_that_the_start_rebuilds_is_no_loss() -> None:
    """A bit that flips on the device changes neither inode nor change time."""
    store = memory_store()
    append(store.create(), make_batch(2))
    store.directory.write_checkpoints()
    for _ in range(2):
        store.directory.ownership.trust_page_cache()
        disk, path = store.memory_disk, store.log.folder / PARTITION_METADATA
        number = disk.inode(path)
        disk.kill()
        disk.flip(path, 8 * (disk.size(path) - 4))
        store.directory = LogDirectory(store.path, disk, store.clock, SeededRandom(1))
        store.directory.open(None, 1)
        store.directory.load_logs(lambda *_: store.config, store.known, lambda _: TOPIC_ID)
        assert disk.inode(path) != number, "it was rebuilt"
        assert not store.directory.has_lost


def test_a_log_whose_files_cannot_be_found_is_not_compared() -> None:
    store = memory_store()
    log = store.create()
    store.disk.remove(log.folder / PARTITION_METADATA)
    assert FilesOfLogs(store.disk).of(KEY, log) is None


def test_a_copy_of_the_whole_folder_names_no_single_logs(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    kill(store)
    shutil.move(store.path, store.path.with_name("former"))
    shutil.copytree(store.path.with_name("former"), store.path)
    store.start()
    assert store.directory.has_lost
    assert "topic-0 has other files" not in caplog.text


def test_without_files_in_the_checkpoint_nothing_is_compared(store: Store) -> None:
    """As in a folder of an older version."""
    path = store.path / KNOWN_LOGS
    known = decode_known_logs(path.read_bytes())
    assert known[KEY].files is not None
    kill(store)
    older = known_logs_file().encode({KEY: known[KEY]._replace(files=None)})
    path.write_bytes(older)
    seal = FolderSeal(store.path / FOLDER_SEAL, path, store.disk)
    seal.open(is_expected=True)
    seal.begin()
    put_back_folder(store.path / "topic-0", store.path.with_name("copy"))
    store.start()
    assert not store.directory.has_lost
