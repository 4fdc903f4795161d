"""`lakelog serve --workers 2` in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import LAKELOG, whole_lines
from system.processes import await_exit
from waiting import eventually

_LIMIT_S = 180
_TOPIC, _PARTITIONS = "orders", 4


class Workers:
    """The command and its log."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "stderr"
        words = [LAKELOG, "serve", "--workers", "2", "--listen", "127.0.0.1:0"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([*words, "--data", str(folder / "data")], stderr=log)

    def events(self, name: str) -> list[Any]:
        whole = whole_lines(self._log.read_text())
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    @property
    def bootstrap(self) -> str:
        (ready, *_) = self.events("workers_ready")
        return str(ready["addresses"])

    def pids(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        return bool(self.events("workers_ready"))


@contextmanager
def workers(folder: Path) -> Iterator[Workers]:
    running = Workers(folder)
    try:
        eventually(running.is_ready, _LIMIT_S)
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def produce(bootstrap: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(_TOPIC, value, partition=number % _PARTITIONS)
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
        admin = AdminClient({"bootstrap.servers": bootstrap})
        eventually(lambda: len(admin.list_topics(timeout=30).brokers) == 2)
        admin.create_topics([NewTopic(_TOPIC, _PARTITIONS)])[_TOPIC].result(_LIMIT_S)
        partitions = admin.list_topics(_TOPIC, timeout=30).topics[_TOPIC].partitions.values()
        assert {each.leader for each in partitions} == {1, 2}
        assert {len(each.replicas) for each in partitions} == {1}
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
