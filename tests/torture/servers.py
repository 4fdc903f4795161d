"""Three brokers and their metadata store, each server on a host of its own."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from broker_process import BrokerProcess
from lakelog.cli.local_cluster.ensemble import Home, ZooKeeperEnsemble
from torture.failing_disk import FailingDisk
from torture.hosts import Hosts
from torture.small_disk import SmallDisk
from waiting import eventually

NUMBERS, LEDGER, OUTPUTS = "numbers", "ledger", "outputs"
TOPICS = (NUMBERS, LEDGER, OUTPUTS)
PULSES = "pulses"
"""A topic that only shows which partitions accept writes."""
PARTITIONS = 4
BROKERS = (1, 2, 3)
SERVERS = (1, 2, 3)
"""Numbers of the ZooKeeper servers."""
FILLED = 3
"""The broker whose disk a run can fill."""
FAILING = 2
"""The broker whose disk a run can let fail."""
EMBEDDED, ZOOKEEPER = "sqlite", "zookeeper"
_PORT, HTTP_PORT = 9092, 9180
_TIMEOUT_S = 10
_FULL_S = 120.0
SESSION_S = 3.0
"""Shorter than most faults, so that they have consequences."""
_SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.min.session.timeout.ms": "1000",
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "2",
}
_TOPIC_SETTINGS = {"min.insync.replicas": "2", "segment.bytes": "1048576"}
QUIET = {"log_level": 0, "socket.timeout.ms": 10_000}


def host_of_broker(number: int) -> str:
    return f"broker{number}"


def host_of_server(number: int) -> str:
    return f"zookeeper{number}"


class Servers:
    """A context manager: a cluster with its topics. Brokers and servers have their numbers.

    Args:
        store: `EMBEDDED` or `ZOOKEEPER`.
    """

    def __init__(self, folder: Path, hosts: Hosts, store: str) -> None:
        self.ensemble: ZooKeeperEnsemble | None = None
        metadata = f"sqlite:{folder / 'metadata.db'}"
        if store == ZOOKEEPER:
            names = map(host_of_server, SERVERS)
            homes = [Home(hosts.address(name), hosts.prefix(name)) for name in names]
            self.ensemble = ZooKeeperEnsemble(folder / "zookeeper", homes)
            metadata = f"zookeeper://{','.join(self.ensemble.servers)}/torture"
        self.failing_disk = FailingDisk(folder / f"broker{FAILING}", folder / "failing-disk")
        self.brokers = {
            number: BrokerProcess(
                folder / f"broker{number}",
                _PORT,
                _SETTINGS,
                (
                    "--node-id",
                    str(number),
                    "--metadata",
                    metadata,
                    "--insecure",
                    *_http(hosts, number),
                ),
                hosts.address(host_of_broker(number)),
                (*hosts.prefix(host_of_broker(number)), *self._disk_of(number)),
            )
            for number in BROKERS
        }
        self.disk = SmallDisk(self.brokers[FILLED].data)
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers.values())
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        self._stack = ExitStack()

    def _disk_of(self, number: int) -> tuple[str, ...]:
        """Return the words before a broker's command that give it a disk of its own kind."""
        return self.failing_disk.prefix if number == FAILING else ()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.disk)
            if self.ensemble is not None:
                stack.enter_context(self.ensemble)
            for broker in self.brokers.values():
                stack.enter_context(broker)
            self._create_topics()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _create_topics(self) -> None:
        eventually(self._is_complete)
        wanted = [
            NewTopic(name, PARTITIONS, len(BROKERS), config=_TOPIC_SETTINGS)
            for name in (*TOPICS, PULSES)
        ]
        for created in self._admin.create_topics(wanted).values():
            created.result(60)
        self.await_full()

    def metadata(self) -> ClusterMetadata:
        return self._admin.list_topics(timeout=_TIMEOUT_S)

    def _is_complete(self) -> bool:
        try:
            return len(self.metadata().brokers) == len(BROKERS)
        except KafkaException:
            return False

    def is_full(self) -> bool:
        """Whether a broker answers, and every broker is in sync with every partition."""
        try:
            topics = self.metadata().topics.values()
        except KafkaException:
            return False
        return all(
            sorted(partition.isrs) == sorted(partition.replicas) and partition.leader in BROKERS
            for topic in topics
            for partition in topic.partitions.values()
        )

    def await_full(self) -> None:
        eventually(self.is_full, _FULL_S, "all replicas were in sync")

    def signal(self, number: int, what: signal.Signals) -> None:
        os.kill(self.brokers[number].pid, what)

    def stop(self) -> None:
        """Stop all brokers in order, one after the other."""
        for broker in self.brokers.values():
            broker.stop()

    def check(self) -> None:
        """Check that no broker has ended by itself."""
        ended = {number: each for number, each in self.brokers.items() if each.has_ended()}
        assert not ended, "\n".join(f"broker {at} ended:\n{b.log()}" for at, b in ended.items())

    def differing_replicas(self) -> list[str]:
        """Return the partitions whose stored bytes are not the same on all brokers."""
        names = [f"{topic}-{index}" for topic in TOPICS for index in range(PARTITIONS)]
        return [
            name
            for name in names
            if len({_stored(each.data / name) for each in self.brokers.values()}) != 1
        ]


def _http(hosts: Hosts, number: int) -> tuple[str, str]:
    return "--http", f"{hosts.address(host_of_broker(number))}:{HTTP_PORT}"


def _stored(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))).rstrip(b"\0")
