"""The topic of a log's directory, if its file is damaged or missing."""

from __future__ import annotations

import pytest

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.storage.errors import CorruptLog
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.folder.known_logs import KNOWN_LOGS
from lakelog.storage.folder.properties import encode_partition_metadata
from lakelog.storage.folder.topic_ids import is_lost, topic_id_in
from lakelog.storage.names import PARTITION_METADATA
from lakelog.storage.recovery.known_log import KnownLog
from storage_kit import DATA, NOW, TOPIC_ID, ManualClock, append, make_batch, memory_store

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
        assert append(directory.create_log("topic", 0, TOPIC_ID, LogConfig()), make_batch()) == 0
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
