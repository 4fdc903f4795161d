"""The owner of a data folder, in `meta.properties`."""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.base.uuids import encode_uuid
from lakelog.runtime.posix import PosixDisk
from lakelog.storage.checkpoint import KnownLog
from lakelog.storage.errors import CorruptLog, WrongDirectory
from lakelog.storage.files import PARTITION_METADATA
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.folder.identity import (
    MetaProperties,
    decode_meta_properties,
    decode_partition_metadata,
    encode_meta_properties,
    encode_partition_metadata,
    is_lost,
    topic_id_in,
)
from lakelog.storage.folder.known_logs import KNOWN_LOGS
from storage_kit import (
    DATA,
    NOW,
    TOPIC_ID,
    ManualClock,
    append,
    create_log,
    make_batch,
    memory_store,
)


def make_directory(disk: MemoryDisk | PosixDisk, path: Path = DATA, seed: int = 5) -> LogDirectory:
    return LogDirectory(path, disk, ManualClock(), SeededRandom(seed))


def test_a_new_folder_gets_an_identity_that_stays() -> None:
    disk = MemoryDisk(ManualClock())
    directory = make_directory(disk)
    directory.open("cluster-a", 3)
    meta = directory.ownership.meta
    assert (meta.cluster_id, meta.node_id) == ("cluster-a", 3)
    directory.load_logs(lambda topic, topic_id: LogConfig(), ())
    directory.close()
    again = make_directory(disk, seed=6)
    again.open(None, 3)
    assert again.ownership.meta == meta
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
    assert directory.ownership.meta.directory_id == bytes(range(16, 32))


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


ID = bytes(range(16))
META = MetaProperties("cluster", 3, ID)


def test_files_are_read_as_they_were_written() -> None:
    assert decode_meta_properties(encode_meta_properties(META)) == META
    assert decode_partition_metadata(encode_partition_metadata(ID)) == ID


def test_a_file_of_apache_kafka_has_no_checksum() -> None:
    data = f"#Wed\nnode.id=3\ndirectory.id={encode_uuid(ID)}\nversion=1\ncluster.id=cluster\n"
    assert decode_meta_properties(data.encode()) == META


@pytest.mark.parametrize("line", [b"cluster.id", b"node.id", b"directory.id"])
def test_each_property_is_needed(line: bytes) -> None:
    body = encode_meta_properties(META).partition(b"#")[0]
    with pytest.raises(ValueError, match="missing"):
        decode_meta_properties(body.replace(line, b"other"))


def test_a_changed_byte_is_noticed() -> None:
    with pytest.raises(ValueError, match="checksum"):
        decode_meta_properties(encode_meta_properties(META).replace(b"=3", b"=4"))


@pytest.mark.parametrize(
    "data", [b"", b"version: 1\ntopic_id: x", b"version: 0", b"version: 0\nid: x"]
)
def test_other_content_is_no_partition_metadata(data: bytes) -> None:
    with pytest.raises(ValueError, match="two lines"):
        decode_partition_metadata(data)


FOLDER = DATA / "topic-0"


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
        assert append(create_log(directory, "topic", 0, TOPIC_ID, LogConfig()), make_batch()) == 0
        (stray,) = [name for name in store.disk.list(DATA) if name.endswith("-stray")]
        assert store.disk.size(DATA / stray / f"{0:020d}.log")


def test_an_emptied_log_whose_topic_id_is_lost_does_not_begin_again() -> None:
    store = memory_store(LogConfig(retention_ms=1))
    append(store.create(), make_batch(), now_ms=NOW)
    assert store.log.delete_old_segments(NOW + 100_000) == 1
    store.directory.close()
    store.disk.remove(FOLDER / "partition.metadata")
    store.start()
    assert "partition.metadata is corrupt" in str(store.directory.failed["topic", 0])


OTHER_ID = bytes(range(100, 116))
NAMED = DATA / "topic-0" / PARTITION_METADATA


def folder_with(data: bytes | None) -> MemoryDisk:
    disk = MemoryDisk(ManualClock())
    disk.make_dirs(FOLDER)
    if data is not None:
        disk.write_atomic(NAMED, data)
    return disk


def test_an_intact_file_is_right_whatever_else_is_known() -> None:
    data = encode_partition_metadata(OTHER_ID)
    disk = folder_with(data)
    for recorded in (None, TOPIC_ID, OTHER_ID):
        for present in (None, TOPIC_ID, OTHER_ID):
            assert topic_id_in(disk, FOLDER, recorded, present) == OTHER_ID
    assert disk.read(NAMED) == data


def test_an_id_with_one_wrong_character_is_that_of_the_topic() -> None:
    """It would look like the log of another topic, and the records would be hidden."""
    damaged = encode_partition_metadata(TOPIC_ID).replace(b"AAEC", b"AAED")
    disk = folder_with(damaged)
    assert topic_id_in(disk, FOLDER, None, TOPIC_ID) == TOPIC_ID
    assert disk.read(NAMED) == encode_partition_metadata(TOPIC_ID)


@pytest.mark.parametrize("data", [None, b"", b"version: 0\ntopic_id: short\n"])
def test_a_lost_id_is_restored_only_if_two_sources_agree(data: bytes | None) -> None:
    disk = folder_with(data)
    for recorded, present in ((None, TOPIC_ID), (OTHER_ID, TOPIC_ID), (TOPIC_ID, None)):
        with pytest.raises(CorruptLog, match=r"partition\.metadata is corrupt"):
            topic_id_in(disk, FOLDER, recorded, present)
    assert topic_id_in(disk, FOLDER, TOPIC_ID, TOPIC_ID) == TOPIC_ID
    assert disk.read(NAMED) == encode_partition_metadata(TOPIC_ID)


@pytest.mark.parametrize(
    ("data", "recovery_point", "present", "expected"),
    [
        (b"\0" * 43, 0, TOPIC_ID, True),
        (b"", 0, TOPIC_ID, True),
        (b"\0" * 43, 1, TOPIC_ID, False),
        (b"\0" * 43, 1, OTHER_ID, True),
        (b"\0" * 43, 0, None, False),
        (b"version", 0, TOPIC_ID, False),
        (None, 0, TOPIC_ID, False),
    ],
)
def test_an_emptied_file_is_lost_if_no_record_of_its_topic_was_durable(
    data: bytes | None, recovery_point: int, present: bytes | None, expected: bool
) -> None:
    known = KnownLog(TOPIC_ID, recovery_point)
    assert is_lost(folder_with(data), FOLDER, known, present) is expected
