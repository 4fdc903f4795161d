"""`lakelog serve --workers 2` in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import LAKELOG, whole_lines
from late_opens import LEASE_S, late_opens
from system.processes import await_exit
from waiting import eventually

_LIMIT_S = 180
_TOPIC, _PARTITIONS = "orders", 4


class Workers:
    """The command and its log, which is another one for each start."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self._log = folder / f"stderr-{len(list(folder.glob('stderr-*')))}"
        words = [LAKELOG, "serve", "--workers", "2", "--listen", "127.0.0.1:0"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([*words, "--data", str(self.data)], stderr=log)

    def events(self, name: str) -> list[Any]:
        whole = whole_lines(self._log.read_text())
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    @property
    def bootstrap(self) -> str:
        (ready, *_) = self.events("workers_ready")
        return str(ready["addresses"])

    def of_worker(self, node_id: int, name: str) -> list[Any]:
        """Return the events of one worker; the command must run."""
        assert self.process.poll() is None, self._log.read_text()
        return [line for line in self.events(name) if line["worker"] == node_id]

    def kill(self) -> None:
        """Kill the workers and the command, which would start them again."""
        self.process.send_signal(signal.SIGSTOP)
        pids = self.pids()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        for pid in pids:
            await_exit(pid)

    def pids(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        return bool(self.events("workers_ready"))


@contextmanager
def starting(folder: Path) -> Iterator[Workers]:
    running = Workers(folder)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


@contextmanager
def workers(folder: Path) -> Iterator[Workers]:
    with starting(folder) as running:
        eventually(running.is_ready, _LIMIT_S)
        yield running


def leaders(bootstrap: str) -> dict[int, int]:
    """Create the topic on both workers; return the leader of each partition.

    A worker lists itself, and the other one only once it is unfenced.
    """
    admins = [AdminClient({"bootstrap.servers": address}) for address in bootstrap.split(",")]
    eventually(lambda: all(len(each.list_topics(timeout=30).brokers) == 2 for each in admins))
    admin = admins[0]
    admin.create_topics([NewTopic(_TOPIC, _PARTITIONS)])[_TOPIC].result(_LIMIT_S)
    partitions = admin.list_topics(_TOPIC, timeout=30).topics[_TOPIC].partitions
    assert {len(each.replicas) for each in partitions.values()} == {1}
    return {index: each.leader for index, each in partitions.items()}


def produce(
    bootstrap: str, values: list[bytes], partitions: Sequence[int] = range(_PARTITIONS)
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(_TOPIC, value, partition=partitions[number % len(partitions)])
    assert producer.flush(_LIMIT_S) == 0


def consumed(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(_TOPIC, index, 0) for index in range(_PARTITIONS)])
    found: list[bytes] = []

    def read() -> bool:
        values = [each.value() for each in consumer.consume(1000, 0.2) if each.error() is None]
        found.extend(value for value in values if isinstance(value, bytes))
        return len(found) >= count

    eventually(read, _LIMIT_S)
    consumer.close()
    return found


def test_clients_find_the_worker_of_each_partition_and_a_dead_one_returns(tmp_path: Path) -> None:
    with workers(tmp_path) as running:
        bootstrap = running.bootstrap
        assert set(leaders(bootstrap).values()) == {1, 2}
        values = [b"%d" % number for number in range(200)]
        produce(bootstrap, values[:100])
        os.kill(running.pids()[0], signal.SIGKILL)
        eventually(lambda: running.events("worker_ended"))
        produce(bootstrap, values[100:])
        assert sorted(consumed(bootstrap, 200)) == sorted(values)
        pids = running.pids()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(_LIMIT_S) == 0
        assert {line["worker"] for line in running.events("stopped")} == {1, 2}
        for pid in pids:
            await_exit(pid)


def test_workers_that_refuse_their_store_are_not_started_again(tmp_path: Path) -> None:
    with workers(tmp_path) as running:
        other = tmp_path / "other.db"
        other.touch()
        other.rename(tmp_path / "data" / "metadata.db")
        assert running.process.wait(_LIMIT_S) == 6
        assert len(running.events("metadata_refused")) == 2
        assert len(running.events("worker_ended")) == 2


@pytest.mark.parametrize("reports", [1, pytest.param(7, marks=pytest.mark.long)])
def test_a_worker_serves_while_the_other_one_recovers(tmp_path: Path, reports: int) -> None:
    """All were killed, and opening a log of worker 1 takes until it has reported its progress.

    It reports every ten seconds. No limit of time may end the command meanwhile.
    """
    with workers(tmp_path) as killed:
        leader = leaders(killed.bootstrap)
        slow = [index for index in leader if leader[index] == 1]
        fast = [index for index in leader if leader[index] == 2]
        values = [b"%d" % number for number in range(150)]
        produce(killed.bootstrap, values[:50])
        killed.kill()
    folders = [killed.data / "broker-1" / f"{_TOPIC}-{index}" for index in slow]
    logs = [folder / "00000000000000000000.log" for folder in folders]
    assert LEASE_S * len(logs) > 10 * (reports + 1), "the kernel would end the fault too soon"
    with starting(tmp_path) as running:
        with late_opens(logs):
            (ready,) = eventually(lambda: running.of_worker(2, "ready"), _LIMIT_S)
            produce(ready["listeners"][0].removeprefix("PLAINTEXT://"), values[50:100], fast)
            loading = eventually(
                lambda: running.of_worker(1, "logs_loading")[reports - 1 :], _LIMIT_S
            )
            assert _TOPIC in loading[0]["message"]
            assert not running.of_worker(1, "ready")
            assert not running.is_ready()
        eventually(running.is_ready, _LIMIT_S)
        produce(running.bootstrap, values[100:])
        assert sorted(consumed(running.bootstrap, 150)) == sorted(values)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(_LIMIT_S) == 0
        assert not running.events("worker_ended")[1:], "it says that it stops, and nothing else"
