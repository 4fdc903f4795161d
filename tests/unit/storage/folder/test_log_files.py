"""A start after a kill notices other files in the place of a log's, and no change of the broker."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.folder.known_logs import KNOWN_LOGS, KnownLogsFile, decode_known_logs
from lakelog.storage.folder.log_files import FilesOfLogs
from lakelog.storage.names import PARTITION_METADATA
from lakelog.storage.seal import FOLDER_SEAL, FolderSeal
from storage_kit import TOPIC_ID, ManualClock, Store, append, make_batch, memory_store

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
    store.directory.trust_page_cache()
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
    store.directory.trust_page_cache()
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
        store.directory.trust_page_cache()
        append(store.log, make_batch(100))


def test_a_folder_may_be_moved_after_a_clean_stop(store: Store) -> None:
    store.directory.close()
    shutil.move(store.path, store.path.with_name("former"))
    shutil.copytree(store.path.with_name("former"), store.path)
    store.start()
    assert not store.directory.has_lost
    store.directory.trust_page_cache()
    kill(store)
    store.start()
    assert not store.directory.has_lost, "the start has noted the new files"


def test_a_topic_id_that_the_start_rebuilds_is_no_loss() -> None:
    """A bit that flips on the device changes neither inode nor change time."""
    store = memory_store()
    append(store.create(), make_batch(2))
    store.directory.write_checkpoints()
    for _ in range(2):
        store.directory.trust_page_cache()
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
    older = KnownLogsFile().encode({KEY: known[KEY]._replace(files=None)})
    path.write_bytes(older)
    seal = FolderSeal(store.path / FOLDER_SEAL, path, store.disk)
    seal.open(is_expected=True)
    seal.begin()
    put_back_folder(store.path / "topic-0", store.path.with_name("copy"))
    store.start()
    assert not store.directory.has_lost
