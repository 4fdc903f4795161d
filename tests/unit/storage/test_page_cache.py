"""A start trusts the page cache after a kill, and not after a power failure."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import suppress

import pytest

from doubles.disk import DiskStopped, MemoryDisk
from lakelog.base.config.log_config import LogConfig
from lakelog.storage.errors import CorruptLog
from lakelog.storage.files import LOG
from lakelog.storage.marks import BOOT_ID, FOLDER_SEAL
from storage_kit import DATA, ManualClock, Store, append, make_batch, memory_store

PATH = DATA / BOOT_ID
ITS_OWN = (BOOT_ID, ".lock")


@pytest.fixture
def store() -> Store:
    """With one batch that is not synced, of a process that has started without a loss."""
    store = memory_store()
    append(store.create(), make_batch(2))
    store.directory.ownership.trust_page_cache()
    return store


def has_lost_after(store: Store, end: Callable[[], object]) -> bool:
    end()
    store.start()
    return store.directory.has_lost


def test_a_killed_process_has_lost_nothing_and_the_power_may_take_all(store: Store) -> None:
    disk = store.memory_disk
    assert not has_lost_after(store, disk.kill)
    assert store.log.log_end_offset == 2
    store.directory.ownership.trust_page_cache()
    assert has_lost_after(store, disk.crash)


def test_a_clean_stop_loses_nothing_even_in_a_power_failure_after_it(store: Store) -> None:
    def stop_and_boot() -> None:
        store.directory.close()
        store.memory_disk.crash()

    assert not has_lost_after(store, stop_and_boot)


@pytest.mark.parametrize("content", [None, b"", b"boot 7\n", b"boot 0", b"\xff\0\n"])
def test_without_the_name_of_this_page_cache_it_is_not_believed(
    store: Store, content: bytes | None
) -> None:
    store.disk.remove(PATH) if content is None else store.disk.write_atomic(PATH, content)
    assert has_lost_after(store, store.memory_disk.kill)


def test_nor_without_the_seal_that_it_names(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Files of an older version were put back, and all others removed but `.lock` and this one."""
    store.disk.remove(DATA / FOLDER_SEAL)
    assert has_lost_after(store, store.memory_disk.kill)
    assert "was changed by another program" in caplog.text


def put_back(store: Store, files: dict[str, bytes]) -> None:
    """Replace all files of a killed broker but `.lock` and `boot-id`."""
    store.memory_disk.kill()
    for name in store.disk.list(DATA):
        if store.disk.is_dir(DATA / name):
            store.disk.remove_tree(DATA / name)
        elif name not in ITS_OWN:
            store.disk.remove(DATA / name)
    for name, content in files.items():
        store.disk.write_atomic(DATA / name, content)


def test_nor_in_a_folder_that_was_put_back_as_at_any_step_of_its_first_start() -> None:
    first = memory_store().memory_disk
    for step in range(1, first.steps + 1):
        older = MemoryDisk(ManualClock())
        older.stop_at = step
        with suppress(DiskStopped):
            Store(older)
        if older.is_dir(DATA):
            names = [name for name in older.list(DATA) if name not in ITS_OWN]
            store = memory_store()
            append(store.create(), make_batch(2))
            store.directory.ownership.trust_page_cache()
            put_back(store, {name: older.read(DATA / name) for name in names})
            store.start()
            assert store.directory.has_lost, names


def test_nor_does_a_clean_stop_count_then(store: Store) -> None:
    def stop_and_change() -> None:
        store.directory.close()
        store.disk.remove(DATA / FOLDER_SEAL)

    assert has_lost_after(store, stop_and_change)


def test_the_mark_of_an_older_version_counts_without_a_seal(store: Store) -> None:
    store.disk.remove(DATA / FOLDER_SEAL)
    store.disk.write_atomic(PATH, store.disk.read(PATH).removesuffix(b"sealed\n"))
    assert not has_lost_after(store, store.memory_disk.kill)


def test_nor_if_the_kernel_does_not_name_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> str:
        raise OSError(errno.ENOENT, "no such boot")

    monkeypatch.setattr(MemoryDisk, "page_cache_id", refuse)
    assert has_lost_after(store, store.memory_disk.kill)
    assert "counts as a power failure" in caplog.text
    store.directory.ownership.trust_page_cache()
    assert "cannot be written" in caplog.text
    assert not store.disk.exists(PATH)


def test_a_start_that_is_killed_before_it_has_noted_its_losses_is_not_believed(
    store: Store,
) -> None:
    """It may have cut a log, which the next start finds whole."""
    assert not has_lost_after(store, store.memory_disk.kill)
    assert has_lost_after(store, store.memory_disk.kill)
    store.directory.ownership.trust_page_cache()
    assert not has_lost_after(store, store.memory_disk.kill)


def test_the_file_is_durable_and_so_is_its_removal(store: Store) -> None:
    disk = store.memory_disk
    assert disk.copy_after_crash().exists(PATH)
    store.killed()
    assert not disk.copy_after_crash().exists(PATH)


@pytest.mark.parametrize("operation", ["write", "truncate", "sync"])
def test_after_a_failure_of_the_device_it_is_not_believed(store: Store, operation: str) -> None:
    disk = store.memory_disk
    disk.fail(operation, errno.EIO, suffix=LOG)  # type: ignore[arg-type]
    file = store.log.segments.active.open().file
    calls = {"write": lambda: file.write_at(300, b"x"), "truncate": lambda: file.truncate(1)}
    with pytest.raises(OSError, match="Input/output"):
        calls.get(operation, file.sync)()
    assert not disk.copy_after_crash().exists(PATH), "before the failure is reported"
    store.directory.ownership.trust_page_cache()
    assert not disk.exists(PATH), "until a start has recovered the logs"
    assert has_lost_after(store, disk.kill)


@pytest.mark.parametrize(
    ("operation", "code", "believed"),
    [
        ("write", errno.ENOSPC, True),
        ("write", errno.EDQUOT, True),
        ("read", errno.EIO, True),
        ("sync", errno.EMFILE, True),
        ("sync", errno.ENOSPC, False),
    ],
)
def test_what_failed_without_touching_a_page_changes_nothing(
    store: Store, operation: str, code: int, believed: bool
) -> None:
    disk = store.memory_disk
    disk.fail(operation, code, suffix=LOG)  # type: ignore[arg-type]
    file = store.log.segments.active.open().file
    calls: dict[str, Callable[[], object]]
    calls = {"write": lambda: file.write_at(300, b"x"), "read": lambda: file.read_at(0, 1)}
    with pytest.raises(OSError):
        calls.get(operation, file.sync)()
    assert disk.exists(PATH) is believed


def test_a_failure_that_another_process_met_counts_too(store: Store) -> None:
    store.directory.ownership.page_cache.on_failure()
    assert has_lost_after(store, store.memory_disk.kill)


def test_where_the_file_cannot_be_removed_the_log_says_so(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    disk = store.memory_disk
    disk.fail("sync", errno.EIO, times=2)
    with pytest.raises(OSError, match="Input/output"):
        store.log.segments.active.open().file.sync()
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "remove it before the next start" in record.getMessage()


def test_records_that_recovery_truncates_are_lost_even_with_the_same_page_cache(
    store: Store,
) -> None:
    disk = store.memory_disk
    disk.flip(store.log.segments.active.path(LOG), 8 * 70)
    assert has_lost_after(store, disk.kill)
    assert store.log.log_end_offset == 0


def test_records_of_a_failed_sync_are_lost_even_with_the_same_page_cache(store: Store) -> None:
    disk = store.memory_disk
    log = store.log
    job = log.begin_flush()
    assert job is not None
    disk.fail("sync", errno.EIO, suffix=LOG)
    with pytest.raises(OSError, match="Input/output"):
        job.run()
    disk.write_atomic(PATH, b"boot 0\n")  # as though its removal had been lost
    assert has_lost_after(store, disk.kill)


def test_so_is_a_log_that_is_offline() -> None:
    store = memory_store(LogConfig(segment_bytes=400))
    for _ in range(4):
        append(store.create() if not store.directory.logs else store.log, make_batch(2))
    store.log.flush()
    store.directory.write_checkpoints()
    store.directory.ownership.trust_page_cache()
    disk = store.memory_disk
    disk.remove(store.log.segments[-1].path(LOG))
    assert has_lost_after(store, disk.kill)
    assert isinstance(store.directory.failed["topic", 0], CorruptLog)


def test_it_has_the_broker_epoch_of_its_process(store: Store) -> None:
    store.directory.ownership.broker_epoch = 7
    store.directory.ownership.trust_page_cache()
    store.memory_disk.kill()
    store.start()
    assert store.directory.ownership.broker_epoch == 7
    store.directory.ownership.trust_page_cache()
    store.memory_disk.crash()
    store.start()
    assert store.directory.ownership.broker_epoch == -1, "records may be lost"


def test_a_mark_of_an_older_version_has_no_broker_epoch(store: Store) -> None:
    name, end, _ = store.disk.read(PATH).partition(b"\n")
    store.disk.write_atomic(PATH, name + end)
    assert not has_lost_after(store, store.memory_disk.kill)
    assert store.directory.ownership.broker_epoch == -1
