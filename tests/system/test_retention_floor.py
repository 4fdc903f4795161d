"""Records that a topic's table does not have yet stay on every replica, also after a failover."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.admin import Admin
from lakelog.client.errors import ClientError
from lakelog.client.producer import Producer
from lakelog.testing import cluster
from lakelog.testing.brokers import Cluster
from spark.archiver import Archiver
from waiting import eventually

RECORDS = 12
SEGMENTS = {"segment.bytes": 1 << 20, "retention.bytes": 1 << 20, "file.delete.delay.ms": 0}
"""A segment has three records; retention keeps one or two segments."""


def send(brokers: Cluster, topic: str) -> None:
    with Producer(brokers.bootstrap_servers) as producer:
        for _ in range(RECORDS):
            # Each is a batch, for only whole batches begin a segment.
            producer.send(topic, bytes(300_000), partition=0)
            producer.flush()


def oldest(folder: Path, topic: str) -> dict[int, int]:
    """Return the first offset in the folder of each broker, by node id; -1 without a file."""
    return {
        int(path.name.removeprefix("broker-")): min(
            (int(file.stem) for file in (path / f"{topic}-0").glob("*.log")), default=-1
        )
        for path in folder.glob("broker-*")
    }


def await_retention(brokers: Cluster, folder: Path, nodes: set[int], name: str) -> None:
    """Return when these brokers have applied retention to all their partitions.

    A topic without a table shows it: its records are younger than all others.
    """
    brokers.create_topic(name, config=SEGMENTS)
    send(brokers, name)

    def is_applied() -> bool:
        first = oldest(folder, name)
        return all(first[node] >= RECORDS // 2 for node in nodes)

    eventually(is_applied, what=f"retention of {name}")


def check_deletion(brokers: Cluster, floor: int) -> None:
    """Check that clients can delete the records below the floor, and no more."""
    with Admin(brokers.bootstrap_servers) as admin:
        with pytest.raises(ClientError) as refused:
            admin.topics.delete_records({("kept", 0): floor + 1})
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        assert admin.topics.delete_records({("kept", 0): floor}) == {("kept", 0): floor}


def test_every_replica_keeps_records_that_the_table_lacks(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    settings = {"log.retention.check.interval.ms": "100"}
    with cluster(folder=folder, settings=settings) as brokers:
        brokers.create_topic("kept", config=SEGMENTS | {"table.enable": "true"})
        archiver = Archiver(brokers.bootstrap_servers, "kept", tmp_path / "warehouse", 64 << 20)
        send(brokers, "kept")
        await_retention(brokers, folder, {1, 2, 3}, "before-the-first-commit")
        assert oldest(folder, "kept") == {1: 0, 2: 0, 3: 0}

        floor = archiver.run()[0]
        assert floor == RECORDS
        send(brokers, "kept")
        eventually(
            lambda: all(
                RECORDS // 2 <= first <= floor for first in oldest(folder, "kept").values()
            ),
            what="retention of archived segments",
        )
        leader = brokers.leader_id("kept")
        brokers.brokers[leader].kill()
        others = {1, 2, 3} - {leader}
        await_retention(brokers, folder, others, "after-the-failover")
        assert brokers.leader_id("kept") in others
        first = oldest(folder, "kept")
        assert all(first[node] <= floor for node in others)

        check_deletion(brokers, floor)
        end = archiver.run()[0]
        assert end == 2 * RECORDS
        eventually(
            lambda: all(oldest(folder, "kept")[node] >= floor + RECORDS // 2 for node in others),
            what="retention after the archive",
        )
        send(brokers, "kept")
        check_deletion(brokers, end)
        assert brokers.leader_id("kept") in others
        with Admin(brokers.bootstrap_servers) as admin:
            forced = admin.topics.delete_records({("kept", 0): end + 1}, force=True)
        assert forced == {("kept", 0): end + 1}

        brokers.brokers[leader].start()
        brokers.await_in_sync()
        await_retention(brokers, folder, {1, 2, 3}, "after-the-restart")
        eventually(
            lambda: all(
                floor + RECORDS // 2 <= first <= end + 1
                for first in oldest(folder, "kept").values()
            ),
            what="retention on the restarted broker",
        )
