"""The lock of a data folder and the mark of a clean stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.errors import DirectoryInUse, WrongDirectory
from lakelog.storage.files import read_if_exists
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.folder.known_logs import KNOWN_LOGS
from lakelog.storage.folder.ownership import CLEAN_SHUTDOWN, Ownership
from lakelog.storage.marks import FOLDER_SEAL
from storage_kit import DATA, ManualClock


def make_directory(disk: MemoryDisk | PosixDisk, path: Path = DATA, seed: int = 5) -> LogDirectory:
    return LogDirectory(path, disk, ManualClock(), SeededRandom(seed))


def test_a_new_folder_survives_a_power_failure_with_its_parents() -> None:
    disk = MemoryDisk(ManualClock(), names_in_order=False)
    folder = Path("/srv/lakelog/data")
    directory = LogDirectory(folder, disk, ManualClock(), SeededRandom(1))
    directory.open(None, 1)
    cluster_id = directory.ownership.meta.cluster_id
    disk.crash()
    again = LogDirectory(folder, disk, ManualClock(), SeededRandom(2))
    again.open(None, 1)
    assert again.ownership.meta.cluster_id == cluster_id


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


def taken(disk: MemoryDisk) -> Ownership:
    ownership = Ownership(DATA, disk)
    ownership.take(SeededRandom(1), None, 1)
    return ownership


def test_a_stop_is_clean_until_the_folder_changes_again() -> None:
    disk = MemoryDisk(ManualClock())
    first = taken(disk)
    assert not first.clean
    first.claim_clean()
    first.release()

    second = taken(disk)
    assert second.clean
    second.disclaim_clean()
    assert second.clean, "it states how the process before stopped"
    disk.crash()
    assert not taken(disk).clean, "the removal of the mark is durable"


def use(disk: MemoryDisk) -> Ownership:
    """Return the folder as a process that was killed left it, with all marks."""
    ownership = taken(disk)
    ownership.broker_epoch = 7
    ownership.disclaim_clean()
    for content in (b"first", b"second"):
        ownership.seal.replace(content)
    ownership.durable_mark.write((bytes(16),), [bytes(16)])
    ownership.page_cache.write(7)
    return ownership


@pytest.mark.parametrize("end", ["kill", "power", "stop"])
@pytest.mark.parametrize("is_restored", [False, True])
def test_marks_of_a_folder_with_older_files_do_not_count(end: str, is_restored: bool) -> None:
    disk = MemoryDisk(ManualClock())
    before = use(disk)
    if end == "stop":
        before.claim_clean()
    before.release()
    disk.crash() if end == "power" else disk.kill()
    if is_restored:
        disk.write_atomic(DATA / KNOWN_LOGS, b"first")
    found = taken(disk)
    counts = not is_restored
    assert found.clean is (counts and end == "stop")
    assert found.cached is (counts and end != "power")
    assert found.broker_epoch == (7 if counts and end != "power" else -1)
    assert (found.durable_mark.find() is not None) is counts
    found.disclaim_clean()
    found.release()
    assert (taken(disk).durable_mark.find() is not None) is counts, "it stays void"


def test_a_damaged_mark_is_no_clean_stop(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk(ManualClock())
    first = taken(disk)
    first.claim_clean()
    first.release()
    disk.write_atomic(DATA / CLEAN_SHUTDOWN, b"")
    assert not taken(disk).clean
    assert "recovering all logs" in caplog.text


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_damaged_seal_is_named_and_no_mark_counts(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk(ManualClock())
    before = use(disk)
    if end == "stop":
        before.claim_clean()
    before.release()
    data = read_if_exists(disk, DATA / FOLDER_SEAL)
    assert data is not None
    disk.write_atomic(DATA / FOLDER_SEAL, data[:-1])
    found = taken(disk)
    assert (found.clean, found.cached, found.broker_epoch) == (False, False, -1)
    assert found.durable_mark.find() is None
    assert caplog.messages == [f"{DATA / FOLDER_SEAL} is damaged; recovering all logs"]


def test_a_folder_that_was_refused_is_free_again() -> None:
    disk = MemoryDisk(ManualClock())
    taken(disk).release()
    with pytest.raises(WrongDirectory):
        Ownership(DATA, disk).take(SeededRandom(1), None, 2)
    taken(disk).release()


def test_the_lock_may_be_released_twice() -> None:
    ownership = taken(MemoryDisk(ManualClock()))
    ownership.release()
    ownership.release()


def test_the_mark_of_a_clean_stop_has_the_broker_epoch() -> None:
    disk = MemoryDisk(ManualClock())
    first = taken(disk)
    assert first.broker_epoch == -1
    first.broker_epoch = 7
    first.claim_clean()
    first.release()
    assert disk.read(DATA / CLEAN_SHUTDOWN) == b'{"version":0,"brokerEpoch":7}'
    assert taken(disk).broker_epoch == 7


def test_a_mark_without_a_broker_epoch_is_clean_and_of_an_unknown_one() -> None:
    disk = MemoryDisk(ManualClock())
    taken(disk).release()
    disk.write_atomic(DATA / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
    found = taken(disk)
    assert (found.clean, found.broker_epoch) == (True, -1)
