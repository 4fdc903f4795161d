"""Two clusters of three brokers under measurement: lakelog's and Apache Kafka's.

The port of a cluster is its first broker's; the load generators find the leaders from there.
"""

from __future__ import annotations

import time
from pathlib import Path

from brokers import (
    Broker,
    BrokerError,
    KafkaBroker,
    LakelogBroker,
    free_port,
    run_storage_tool,
)
from confluent_kafka.admin import AdminClient

from lakelog.cli.local_cluster.ensemble import ZooKeeperEnsemble

SIZE = 3
_FORMED_TIMEOUT_S = 120.0
_POLL_S = 0.1
_DELETE_SOON = "log.segment.delete.delay.ms=1000"
"""A deleted topic has to make room for the next one."""


class LakelogMember(LakelogBroker):
    """One broker of a lakelog cluster with `metadata` as its store."""

    def __init__(self, folder: Path, node_id: int, metadata: str) -> None:
        super().__init__(folder)
        self.name = f"lakelog {node_id}"
        self.node_id = node_id
        self._metadata = metadata

    def command(self) -> list[str]:
        place = ["--node-id", str(self.node_id), "--metadata", self._metadata]
        return [*super().command(), *place, "--set", _DELETE_SOON]


_KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
{delete_soon}
"""


class KafkaMember(KafkaBroker):
    """One broker and controller of a Kafka cluster (KRaft)."""

    def __init__(self, folder: Path, node_id: int) -> None:
        super().__init__(folder)
        self.name = f"Kafka {node_id}"
        self.node_id = node_id
        self.controller_port = free_port()

    @property
    def voter(self) -> str:
        return f"{self.node_id}@127.0.0.1:{self.controller_port}"

    def format(self, cluster_id: str, voters: str) -> None:
        properties = self.folder / "server.properties"
        properties.write_text(
            _KAFKA_PROPERTIES.format(
                node_id=self.node_id,
                voters=voters,
                port=self.port,
                controller_port=self.controller_port,
                folder=self.folder,
                delete_soon=_DELETE_SOON,
            )
        )
        run_storage_tool("format", "-t", cluster_id, "-c", str(properties))


class Cluster:
    """Three brokers that are started, measured and stopped together."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.brokers: list[Broker] = []
        folder.mkdir(parents=True)

    @property
    def port(self) -> int:
        return self.brokers[0].port

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def start(self) -> None:
        """Start all brokers and wait until each knows all others."""
        self._launch()
        for broker in self.brokers:
            self._await_formed(broker)

    def _launch(self) -> None:
        for broker in self.brokers:
            broker.start()

    def _await_formed(self, broker: Broker) -> None:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
        deadline = time.monotonic() + _FORMED_TIMEOUT_S
        while len(admin.list_topics(timeout=_FORMED_TIMEOUT_S).brokers) < SIZE:
            if time.monotonic() > deadline:
                raise BrokerError(f"the brokers of {self.name} did not find each other")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()

    def cpu_seconds(self) -> float:
        """User and system time of all brokers so far."""
        return sum(broker.cpu_seconds() for broker in self.brokers)

    def resident_mb(self) -> float:
        """Resident memory of all brokers, in 10^6 bytes."""
        return sum(broker.resident_mb() for broker in self.brokers)


class LakelogCluster(Cluster):
    """Three `lakelog serve` that share a metadata file."""

    name = "lakelog"

    def _launch(self) -> None:
        metadata = self._metadata()
        self.brokers = [
            LakelogMember(self.folder / f"broker{node_id}", node_id, metadata)
            for node_id in range(1, SIZE + 1)
        ]
        super()._launch()

    def _metadata(self) -> str:
        """Return the location of the metadata, which is ready."""
        return f"sqlite:{self.folder / 'metadata.db'}"


class LakelogOnZooKeeper(LakelogCluster):
    """Three `lakelog serve` with their metadata in a ZooKeeper ensemble of three servers."""

    name = "lakelog on ZooKeeper"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ensemble = ZooKeeperEnsemble(folder)

    def _metadata(self) -> str:
        self._ensemble.__enter__()
        return f"zookeeper://{','.join(self._ensemble.servers)}/bench"

    def stop(self) -> None:
        super().stop()
        self._ensemble.__exit__(None, None, None)


class KafkaCluster(Cluster):
    """Three Apache Kafka processes, each a broker and a controller of the quorum."""

    name = "Kafka"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        members = [KafkaMember(folder / f"broker{number}", number) for number in range(1, SIZE + 1)]
        self.brokers = list(members)
        cluster_id = run_storage_tool("random-uuid")
        voters = ",".join(member.voter for member in members)
        for member in members:
            member.format(cluster_id, voters)

    def _launch(self) -> None:
        """Start all at once: no controller of the quorum is ready without another."""
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.await_ready()


CLUSTERS: dict[str, type[Cluster]] = {
    "lakelog": LakelogCluster,
    "zookeeper": LakelogOnZooKeeper,
    "kafka": KafkaCluster,
}
