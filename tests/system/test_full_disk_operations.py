"""A disk full of records: what frees space is done, and outlives a kill; nothing else is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from lakelog.storage.files import DELETE_DIR, DELETED
from small_disk import SmallDisk, SmallDiskBroker
from waiting import eventually
from wire_client import WireClient, batch_of, create_topic, described, fetch, produce

SIZE = 16 << 20
SETTINGS = {
    "lakelog.disk.reserve.bytes": str(2 << 20),
    "log.segment.bytes": str(1 << 20),
    "log.index.size.max.bytes": "4096",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
STORAGE_ERROR = 56
OUT_OF_RANGE = 1
PATIENCE_S = 120.0


class FullDisk:
    def __init__(self, broker: SmallDiskBroker) -> None:
        self.broker = broker
        self.disk = broker.disk
        self.admin = self._new_admin()
        eventually(lambda: self.reserve_bytes == 2 << 20, what="a disk reserve")

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})

    @property
    def reserve_bytes(self) -> int:
        path = self.disk.seen_folder / "disk-reserve"
        return path.stat().st_size if path.exists() else -1

    def fill(self, topic: str) -> None:
        """With records, until not one more is taken, and with a file to the last byte.

        Files that are already deleted go first: their space would be free again afterwards.
        """
        eventually(lambda: not self.deleted_files(), PATIENCE_S, "rid of deleted files")
        with WireClient(self.broker.bootstrap) as client:
            for size in (100_000, 100):
                while (code := produce(client, topic, batch_of(bytes(size))).error_code) == 0:
                    pass
                assert code == STORAGE_ERROR
            self.disk.fill()
            assert produce(client, topic, batch_of(bytes(5_000))).error_code == STORAGE_ERROR

    def deleted_files(self) -> list[str]:
        """Return the names of the files and folders that the broker has renamed to remove them."""
        found = os.walk(self.disk.seen_folder)  # which may meet files that are just removed
        names = [name for _, folders, files in found for name in (*folders, *files)]
        return [name for name in names if name.endswith((DELETED, DELETE_DIR))]

    def takes_records(self, topic: str) -> bool:
        with WireClient(self.broker.bootstrap) as client:
            return bool(produce(client, topic, batch_of(bytes(100))).error_code == 0)

    def takes_topic(self, topic: str) -> bool:
        with suppress(AssertionError):
            self.create(topic)
            return True
        return False

    def kill_and_restart(self) -> None:
        self.broker.kill()
        self.broker.restart()
        self.admin = self._new_admin()  # the other one may not ask again for a while

    def create(self, topic: str) -> None:
        with WireClient(self.broker.bootstrap) as client:
            create_topic(client, topic, 1)

    def exists(self, topic: str) -> bool:
        with WireClient(self.broker.bootstrap) as client:
            return bool(described(client, topic).error_code == 0)

    def start_of(self, topic: str) -> int:
        partition = TopicPartition(topic, 0)
        (found,) = self.admin.list_offsets({partition: OffsetSpec.earliest()}).values()
        start: int = found.result(PATIENCE_S).offset
        return start

    def delete_records(self, topic: str, before: int) -> None:
        (done,) = self.admin.delete_records([TopicPartition(topic, 0, before)]).values()
        assert done.result(PATIENCE_S).low_watermark == before

    def delete_topic(self, topic: str) -> None:
        (done,) = self.admin.delete_topics([topic]).values()
        done.result(PATIENCE_S)

    def shorten_retention(self, topic: str) -> None:
        change = ConfigEntry(
            "retention.bytes", "1000000", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        (done,) = self.admin.incremental_alter_configs([resource]).values()
        done.result(PATIENCE_S)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[FullDisk]:
    with (
        SmallDisk(tmp_path / "data", SIZE) as disk,
        SmallDiskBroker(disk, SETTINGS) as broker,
    ):
        yield FullDisk(broker)


@pytest.mark.parametrize("killed", [False, True])
def test_space_is_freed_while_the_disk_is_full(full: FullDisk, killed: bool) -> None:
    def perhaps_killed() -> None:
        if killed:
            full.kill_and_restart()

    for topic in ("trimmed", "deleted"):
        full.create(topic)
    full.fill("trimmed")
    full.delete_records("trimmed", 40)
    assert full.broker.events("disk_reserve_freed") >= 1, "it was needed"
    perhaps_killed()
    assert full.start_of("trimmed") == 40
    eventually(lambda: full.takes_records("trimmed"), what="space of deleted records")
    assert full.reserve_bytes == 2 << 20

    full.fill("deleted")
    full.delete_topic("deleted")
    perhaps_killed()
    assert not full.exists("deleted")
    eventually(lambda: full.takes_records("trimmed"), what="space of a deleted topic")

    full.fill("trimmed")
    full.shorten_retention("trimmed")
    perhaps_killed()
    eventually(lambda: full.takes_records("trimmed"), what="space of expired records")
    assert full.start_of("trimmed") > 40
    full.create("afterwards")
    assert full.broker.events("partition_offline") == 0
    assert full.broker.events("request_failed") == 0


def test_the_reserve_is_for_what_frees_space(full: FullDisk) -> None:
    for topic in ("kept", "small"):
        full.create(topic)
    full.fill("kept")
    full.delete_topic("small")
    for _ in range(2):
        assert full.reserve_bytes == 0
        with WireClient(full.broker.bootstrap) as client:
            for size in (100_000, 100):
                answer = produce(client, "kept", batch_of(bytes(size)))
                assert answer.error_code == STORAGE_ERROR
            assert fetch(client, "kept", 0).error_code == 0
        with pytest.raises(AssertionError):
            full.create("more")
        full.kill_and_restart()
    full.disk.free_capacity()
    full.delete_records("kept", 60)
    eventually(lambda: full.takes_records("kept"), what="space again")
    assert full.reserve_bytes == 2 << 20
    # The reserve has taken some of the space, and files of deleted records go one by one.
    eventually(lambda: full.takes_topic("more"), what="space for a topic")
