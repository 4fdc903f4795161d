"""The archive waits for space while the disk of its warehouse is full, and loses nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakelog.client.admin import Admin
from lakelog.tables.archive.publication import group_of
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.warehouse import warehouse_at
from small_disk import SmallDisk
from spark.table_account import TableAccount
from spark.table_sync import TIMEOUT_S, Sync
from spark.topics import MakeTopic, produce
from waiting import eventually

pytestmark = [pytest.mark.spark]


def test_a_follower_waits_for_space_and_continues(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Files, catalog, checkpoints and Spark's log are all on the disk."""
    topic = make_topic(30, partitions=1)
    with SmallDisk(tmp_path / "warehouse", 16 << 20) as disk:
        options = ("--warehouse", str(disk.folder), "--follow", "--every", "300ms")
        job = Sync(bootstrap, topic, *options, inside=disk.inside)
        try:
            await_archived(bootstrap, topic, 30)
            disk.fill()
            produce(bootstrap, topic, range(30, 60), partitions=1)
            note = job.first_note()
            while "retrying" not in note:
                assert note, "the job has ended"
                note = job.first_note()
            disk.free_capacity()
            await_archived(bootstrap, topic, 60)
        finally:
            job.interrupt()
            status, _, errors = job.end()
        assert status == 0, errors
        # SQLite follows /proc to the folder that has no disk, so the copy is read there.
        shutil.copytree(disk.seen_folder, disk.folder, dirs_exist_ok=True)
    assert "No space left on device" in note or "is full: free space" in note
    address = TableAddress(warehouse_at(str(tmp_path / "warehouse")).catalog, ("lakelog", topic))
    TableAccount(address, bootstrap, topic).check()


def await_archived(bootstrap: str, topic: str, end: int) -> None:
    """Wait until the job has published this end of its table."""
    with Admin(bootstrap) as admin:
        eventually(
            lambda: archived(admin, topic) == end, TIMEOUT_S, f"not all {end} records are archived"
        )


def archived(admin: Admin, topic: str) -> int:
    committed = admin.groups.offsets(group_of(topic)).get((topic, 0))
    return committed.offset if committed else 0
