"""`lakelog dev --brokers 3`, and the commands that describe a cluster, in real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker_process import LAKELOG
from command_shell import PATIENT
from system.processes import await_exit
from waiting import eventually

_LIMIT_S = 180
_ROW = re.compile(r"^ +(\d+)  (127\.0\.0\.1:\d+) +(\d+)  (.+)$", re.MULTILINE)


class DevCluster:
    """The command, and the banner that it has printed."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._log = folder / "stderr"
        words = [LAKELOG, "dev", "--brokers", "3", "--port", "0", "--data", str(folder / "data")]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([*words, *options], stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def rows(self) -> dict[int, tuple[str, int, str]]:
        """Address, process and role by node id, from the banner."""
        return {int(row[1]): (row[2], int(row[3]), row[4]) for row in _ROW.finditer(self.log)}

    @property
    def bootstrap(self) -> str:
        return ",".join(address for address, _, _ in self.rows.values())

    @property
    def controller(self) -> int:
        return next(each for each, row in self.rows.items() if row[2].startswith("controller"))

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log
        return "Press ^C" in self.log

    def run(self, *words: str, status: int = 0) -> str:
        """Run a command for this cluster; return its output."""
        done = subprocess.run(
            [LAKELOG, *PATIENT, *words, "-b", self.bootstrap],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert done.returncode == status, done.stderr + self.log
        return done.stdout + done.stderr

    def health(self) -> Any:
        done = subprocess.run(
            [LAKELOG, *PATIENT, "cluster", "health", "-f", "jsonl", "-b", self.bootstrap],
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
        document = json.loads(done.stdout)
        assert document["is_healthy"] == (done.returncode == 0)
        return document


@contextmanager
def dev_cluster(folder: Path, *options: str) -> Iterator[DevCluster]:
    cluster = DevCluster(folder, *options)
    try:
        eventually(cluster.is_ready, _LIMIT_S)
        yield cluster
    finally:
        cluster.process.kill()
        cluster.process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with dev_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_records_survive_the_death_of_the_controller_which_starts_again(
    cluster: DevCluster,
) -> None:
    cluster.run("topic", "create", "orders", "--partitions", "3")
    subprocess.run(
        [LAKELOG, *PATIENT, "produce", "orders", "-b", cluster.bootstrap],
        input=b"one\ntwo\nthree\n",
        check=True,
        timeout=_LIMIT_S,
    )
    node_id = cluster.controller
    os.kill(cluster.rows[node_id][1], signal.SIGKILL)
    eventually(lambda: f"broker {node_id} (pid" in cluster.log)
    assert "was killed by SIGKILL; it starts again" in cluster.log
    assert sorted(cluster.run("consume", "orders", "-e").split()) == ["one", "three", "two"]
    eventually(lambda: cluster.health()["is_healthy"])


def test_a_cluster_describes_itself(cluster: DevCluster) -> None:
    (info,) = json.loads(cluster.run("cluster", "info", "-f", "json"))
    assert info["metadata_store"].endswith("metadata.db")
    assert (info["brokers"], info["fenced_brokers"]) == (3, 0)
    rows = [
        json.loads(row) for row in cluster.run("cluster", "brokers", "-f", "jsonl").split("\n")[:-1]
    ]
    assert [(row["id"], row["state"]) for row in rows] == [(n, "online") for n in (1, 2, 3)]
    assert sum(row["is_controller"] for row in rows) == 1


def test_a_factor_above_the_number_of_brokers_is_refused(cluster: DevCluster) -> None:
    said = cluster.run("topic", "create", "wide", "--replication-factor", "4", status=2)
    assert "error[LL0106]" in said


def test_a_running_broker_stays_registered(cluster: DevCluster) -> None:
    assert "error[LL0308]" in cluster.run("cluster", "unregister", "1", "-y", status=6)
    assert "error[LL0307]" in cluster.run("cluster", "unregister", "9", "-y", status=3)


def test_a_signal_stops_all_brokers_and_a_start_continues(tmp_path: Path) -> None:
    for _ in range(2):
        with dev_cluster(tmp_path) as cluster:
            cluster.run("topic", "create", "kept", "--if-not-exists")
            cluster.process.send_signal(signal.SIGINT)
            assert cluster.process.wait(_LIMIT_S) == 0
            assert cluster.log.count("INFO stopped: ") == 3


def test_a_killed_supervisor_leaves_no_broker(tmp_path: Path) -> None:
    with dev_cluster(tmp_path) as cluster:
        cluster.process.kill()
        for _, pid, _ in cluster.rows.values():
            await_exit(pid)


def test_a_broker_that_cannot_start_ends_the_cluster_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "data" / "broker-2").mkdir(parents=True)
    (tmp_path / "data" / "broker-2" / "meta.properties").write_text("damaged")
    cluster = DevCluster(tmp_path)
    assert cluster.process.wait(_LIMIT_S) == 1
    assert "broker 2 | error[LL0703]" in cluster.log
    assert "error[LL0705] broker 2 (pid" in cluster.log


@pytest.mark.xdist_group("zookeeper")
def test_metadata_in_an_ensemble_survives_its_servers_and_a_restart(tmp_path: Path) -> None:
    with dev_cluster(tmp_path, "--zookeeper") as cluster:
        cluster.run("topic", "create", "orders", "--partitions", "3")
        (killed,) = _pids_of(tmp_path / "data" / "zookeeper" / "2" / "zoo.cfg")
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: "ZooKeeper server 2 was killed by SIGKILL" in cluster.log)
        cluster.run("topic", "create", "events")
        cluster.process.send_signal(signal.SIGINT)
        assert cluster.process.wait(_LIMIT_S) == 0
    with dev_cluster(tmp_path, "--zookeeper") as cluster:
        assert {"orders", "events"} <= set(cluster.run("topic", "list").split())
        servers = [
            pid
            for number in (1, 2, 3)
            for pid in _pids_of(tmp_path / "data" / "zookeeper" / str(number) / "zoo.cfg")
        ]
        assert len(servers) == 3
        cluster.process.kill()
        for pid in servers:
            await_exit(pid)


def _pids_of(file: Path) -> list[int]:
    """Return the processes that were started with this file as their last argument."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(file) in words:
            found.append(int(entry.parent.name))
    return found
