"""Three broker processes that lose their page caches together."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from broker_process import BrokerProcess
from command_shell import Shell
from waiting import eventually

RECORDS = 40
ITS_OWN = (".lock", "boot-id")
LIMITS = ("-p", "1", "--config", "min.insync.replicas=2")


class Cluster:
    def __init__(self, folder: Path, *settings: str) -> None:
        self.brokers = {
            number: BrokerProcess(
                folder / f"broker{number}",
                arguments=(
                    *("--node-id", str(number), "--metadata", f"sqlite:{folder / 'm.db'}"),
                    *("--set", "auto.leader.rebalance.enable=false"),
                    *settings,
                ),
            )
            for number in (1, 2, 3)
        }

    def create(self, *config: str, factor: int = 3) -> None:
        self.shell.out("topic", "create", "orders", "-r", str(factor), *LIMITS, *config)
        self.produce(0)

    def produce(self, start: int) -> None:
        """Write the records from `start` on in several batches."""
        for first in range(start, start + RECORDS, 10):
            lines = b"".join(b"%d\n" % number for number in range(first, first + 10))
            self.shell.out("produce", "orders", given=lines)

    @property
    def shell(self) -> Shell:
        return Shell(",".join(broker.bootstrap for broker in self.brokers.values()))

    def lose_power(self) -> None:
        """Kill all brokers; their page caches count as lost."""
        for broker in self.brokers.values():
            broker.kill()
            (broker.data / "boot-id").unlink()

    def lose_half(self, number: int) -> None:
        """Cut off the end of a log that was not synced."""
        (log,) = (self.brokers[number].data / "orders-0").glob("*.log")
        end = len(log.read_bytes().rstrip(b"\0"))
        os.truncate(log, end // 2)

    def copy(self, number: int, target: Path, left_out: tuple[str, ...]) -> None:
        """Copy the data folder of a running broker, as `cp -a` does, without some of its files."""
        ignored = shutil.ignore_patterns(*left_out, "*.tmp")
        shutil.copytree(self.brokers[number].data, target, ignore=ignored)

    def restore(self, number: int, copy: Path, kept: tuple[str, ...]) -> None:
        """Put the files of a copy in the place of the present ones, except for some of these."""
        data = self.brokers[number].data
        for path in data.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in kept:
                path.unlink()
        shutil.copytree(copy, data, dirs_exist_ok=True)

    def partition(self) -> dict[str, Any]:
        """Return its state as one of the brokers knows it, maybe that of some time ago."""
        row: dict[str, Any] = self.shell.one("topic", "describe", "orders")["partitions"][0]
        return row

    def records(self) -> list[str]:
        return self.shell.out("consume", "orders", "-e").decode().split()


def known_logs(folder: Path) -> bytes:
    """Return the file that every checkpoint replaces, empty before the first one."""
    file = folder / "known-logs"
    return file.read_bytes() if file.exists() else b""


@pytest.fixture
def settings() -> tuple[str, ...]:
    """Arguments of all brokers."""
    return ()


@pytest.fixture
def cluster(tmp_path: Path, settings: tuple[str, ...]) -> Iterator[Cluster]:
    with ExitStack() as running:
        made = Cluster(tmp_path, *settings)
        for broker in made.brokers.values():
            running.enter_context(broker)
        eventually(lambda: len(made.shell.json("cluster", "brokers")) == 3)
        yield made


def test_the_operator_chooses_the_longest_log(cluster: Cluster) -> None:
    cluster.create()
    cluster.lose_power()
    cluster.lose_half(1)
    cluster.lose_half(3)
    for number in (1, 3):
        cluster.brokers[number].restart()
    eventually(lambda: cluster.partition()["leader"] is None)
    refused = cluster.shell.run("topic", "elect", "orders", "--unclean", "--yes")
    assert b"error[LL0309] no answer from broker 2" in refused.stderr
    assert b"no answer" in refused.stdout
    cluster.brokers[2].restart()
    assert cluster.partition()["leader"] is None
    rows = {
        row["replica"]: row
        for row in cluster.shell.json("topic", "elect", "orders", "--unclean", "--yes")
    }
    assert rows[2]["log_end_offset"] == RECORDS
    assert rows[1]["log_end_offset"] < RECORDS > rows[3]["log_end_offset"]
    assert [rows[number]["note"] for number in (1, 2, 3)] == ["", "would lead", ""]
    eventually(lambda: cluster.partition()["leader"] == 2)
    assert cluster.records() == [str(number) for number in range(RECORDS)]
    eventually(
        lambda: (
            b"Every partition has a leader"
            in cluster.shell.run("topic", "elect", "--unclean").stderr
        )
    )
    eventually(lambda: len(str(cluster.partition()["isr"]).split(",")) == 3)
    cluster.shell.out("topic", "elect", "orders")
    preferred = cluster.partition()["replicas"][0]
    eventually(lambda: cluster.partition()["leader"] == preferred)


def test_with_fsync_no_operator_is_needed(cluster: Cluster) -> None:
    cluster.create("--config", "durability=fsync")
    cluster.lose_power()
    for broker in cluster.brokers.values():
        broker.restart()
    eventually(lambda: cluster.partition()["leader"] is not None)
    assert cluster.records() == [str(number) for number in range(RECORDS)]


@pytest.mark.parametrize(
    ("left_out", "kept"),
    [(ITS_OWN, ITS_OWN), ((), ()), (("folder-seal", *ITS_OWN), ITS_OWN)],
    ids=["others", "all", "of an older version"],
)
def test_a_folder_that_was_put_back_does_not_lead(
    cluster: Cluster,
    tmp_path: Path,
    left_out: tuple[str, ...],
    kept: tuple[str, ...],
) -> None:
    cluster.create()
    cluster.copy(1, tmp_path / "copy", left_out)
    cluster.produce(RECORDS)
    # Each checkpoint renews the marks. Until then a copy cannot be distinguished from the folder.
    before = known_logs(tmp_path / "copy")
    eventually(lambda: known_logs(cluster.brokers[1].data) != before)
    for number in (3, 2, 1):  # node 1 stays in the ISR
        cluster.brokers[number].kill()
    cluster.restore(1, tmp_path / "copy", kept)
    cluster.brokers[1].restart()
    # Until the others are fenced.
    eventually(lambda: not set("23").intersection(str(cluster.partition()["isr"])))
    for number in (2, 3):
        cluster.brokers[number].restart()
    eventually(lambda: len(cluster.partition()["isr"]) == 3)
    assert cluster.records() == [str(number) for number in range(2 * RECORDS)]


@pytest.mark.parametrize(
    "settings", [("--set", "replica.high.watermark.checkpoint.interval.ms=600000")], ids=[""]
)
def test_a_log_that_was_put_back_since_its_last_checkpoint_does_not_lead(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The copy reaches the high watermark on the disk: no later one is written before the kill."""
    cluster.create(factor=2)
    restored, other = cluster.partition()["replicas"]
    broker = cluster.brokers[restored]
    broker.stop()  # and write the last checkpoint
    broker.restart()
    cluster.produce(RECORDS)  # both are in sync
    log, before = broker.data / "orders-0", known_logs(broker.data)
    shutil.copytree(log, tmp_path / "copy")
    cluster.produce(2 * RECORDS)
    for running in cluster.brokers.values():
        running.kill()
    assert known_logs(broker.data) == before
    shutil.rmtree(log)
    shutil.copytree(tmp_path / "copy", log)
    broker.restart()
    eventually(lambda: cluster.partition()["leader"] != other)  # until the others are fenced
    for number in {1, 2, 3} - {restored}:
        cluster.brokers[number].restart()
    eventually(lambda: len(cluster.partition()["isr"]) == 2)
    assert cluster.records() == [str(number) for number in range(3 * RECORDS)]


def test_a_topic_is_described_while_its_leader_does_not_know_its_end(cluster: Cluster) -> None:
    cluster.create()
    leader = cluster.partition()["leader"]
    for number in {1, 2, 3} - {leader}:
        cluster.brokers[number].kill()
    # At the restart the log begins an epoch above the high watermark, which stays there: the leader
    # waits for the other members of the ISR.
    cluster.shell.out("produce", "orders", "--acks", "1", given=b"waiting\n")
    cluster.brokers[leader].kill()
    cluster.brokers[leader].restart()
    eventually(lambda: cluster.partition()["leader"] == leader)
    row = cluster.partition()
    assert (row["log_end_offset"], row["records"]) == (None, None)
    assert row["bytes"] > 0
