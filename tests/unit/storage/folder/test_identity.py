"""The owner of a data folder, in `meta.properties`."""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.errors import WrongDirectory
from lakelog.storage.folder.directory import LogDirectory
from storage_kit import DATA, ManualClock, memory_store


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


def test_files_of_another_program_are_named_and_stay(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA / "lost+found")
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        disk.write_atomic(DATA / name, b"foreign")
    directory = make_directory(disk)
    directory.open(None, 1)
    directory.close()
    text = f"{DATA} becomes the data folder, although it has other files: a.txt, b.txt, c.txt and 1"
    assert text in caplog.text
    assert disk.exists(DATA / "d.txt")
    caplog.clear()
    make_directory(disk).open(None, 1)
    assert not caplog.text, "it is no new folder any more"


def test_a_new_data_folder_is_no_reason_for_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(DATA / "lost+found")
    make_directory(disk).open(None, 1)
    assert not caplog.text
