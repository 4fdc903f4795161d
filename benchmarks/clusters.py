"""Two clusters of three brokers under measurement: lakelog's and Apache Kafka's.

The port of a cluster is its first broker's; the load generators find the leaders from there.
Servers run on this host, or each at a home of its own.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from brokers import Broker, BrokerError, KafkaBroker, LakelogBroker, free_port, run_storage_tool
from confluent_kafka.admin import AdminClient

from lakelog.cli.local_cluster.ensemble import Home, ZooKeeperEnsemble

SIZE = 3
HOMES = (Home(),) * SIZE
_FORMED_TIMEOUT_S = 120.0
_POLL_S = 0.1
_DELETE_SOON = "log.segment.delete.delay.ms=1000"
"""A deleted topic has to make room for the next one."""


class LakelogMember(LakelogBroker):
    """One broker of a lakelog cluster with `metadata` as its store."""

    def __init__(self, folder: Path, node_id: int, metadata: str, home: Home) -> None:
        super().__init__(folder, home)
        self.name = f"lakelog {node_id}"
        self.node_id = node_id
        self._metadata = metadata

    def command(self) -> list[str]:
        place = ["--node-id", str(self.node_id), "--metadata", self._metadata, "--insecure"]
        return [*super().command(), *place, "--set", _DELETE_SOON]


_KAFKA_PROPERTIES = """\
process.roles={roles}
node.id={node_id}
controller.quorum.voters={voters}
listeners={listeners}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
{delete_soon}
"""
_BROKER, _CONTROLLER = "broker", "controller"
_QUORUM_TOPIC = b"__cluster_metadata"
_DESCRIBE_QUORUM_V0 = struct.pack(
    ">hhihBBB18sBiBBB", 55, 0, 0, -1, 0, 2, len(_QUORUM_TOPIC) + 1, _QUORUM_TOPIC, 2, 0, 0, 0, 0
)
_LEADER_ID_AT = struct.calcsize(">ibhBB18sBih")
"""Bytes of the response before the id of the leader."""


class KafkaMember(KafkaBroker):
    """One process of a Kafka cluster (KRaft): broker, controller or both."""

    def __init__(self, folder: Path, node_id: int, home: Home, roles: Sequence[str]) -> None:
        super().__init__(folder, home)
        self.name = f"Kafka {node_id}"
        self.node_id = node_id
        self._roles = roles
        self.controller_port = free_port() if _BROKER in roles else self.port

    @property
    def voter(self) -> str:
        return f"{self.node_id}@{self.home.address}:{self.controller_port}"

    def format(self, cluster_id: str, voters: str) -> None:
        ports = {
            _BROKER: ("PLAINTEXT", self.port),
            _CONTROLLER: ("CONTROLLER", self.controller_port),
        }
        named = [(ports[role][0], self.home.address, ports[role][1]) for role in self._roles]
        properties = self.folder / "server.properties"
        properties.write_text(
            _KAFKA_PROPERTIES.format(
                roles=",".join(self._roles),
                node_id=self.node_id,
                voters=voters,
                listeners=",".join(f"{name}://{address}:{port}" for name, address, port in named),
                folder=self.folder,
                delete_soon=_DELETE_SOON,
            )
        )
        arguments = ("format", "-t", cluster_id, "-c", str(properties))
        run_storage_tool(*arguments, prefix=self.home.prefix)

    def quorum_leader(self) -> int:
        """Return the node id of the active controller, as this broker knows it."""
        with socket.create_connection((self.home.address, self.port), timeout=10) as sock:
            sock.sendall(struct.pack(">i", len(_DESCRIBE_QUORUM_V0)) + _DESCRIBE_QUORUM_V0)
            with sock.makefile("rb") as stream:
                answer = stream.read(struct.unpack(">i", stream.read(4))[0])
        leader: int = struct.unpack_from(">i", answer, _LEADER_ID_AT)[0]
        return leader


class Cluster:
    """Three brokers that are started, measured and stopped together.

    Args:
        homes: of the brokers.
        store_homes: of the servers of the metadata store, where it has its own.
    """

    name: str

    def __init__(
        self, folder: Path, homes: Sequence[Home] = HOMES, store_homes: Sequence[Home] = HOMES
    ) -> None:
        self.folder = folder
        self.homes = homes
        self.store_homes = store_homes
        self.brokers: list[Broker] = []
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def port(self) -> int:
        return self.brokers[0].port

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> None:
        """Start all brokers and wait until each knows all others."""
        self._launch()
        for broker in self.brokers:
            self._await_formed(broker)

    def _launch(self) -> None:
        for broker in self.brokers:
            broker.start()

    def _await_formed(self, broker: Broker) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        deadline = time.monotonic() + _FORMED_TIMEOUT_S
        while len(admin.list_topics(timeout=_FORMED_TIMEOUT_S).brokers) < SIZE:
            if time.monotonic() > deadline:
                raise BrokerError(f"the brokers of {self.name} did not find each other")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()

    def controller(self) -> int:
        """Return the node id of the controller, which is a broker or a server of the store."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        found: int = admin.list_topics(timeout=_FORMED_TIMEOUT_S).controller_id
        return found

    def kill_store(self) -> None:
        """Kill all servers of a store that has its own, by `kill -9`."""
        raise NotImplementedError

    def start_store(self) -> None:
        """Start them again, and wait until they serve."""
        raise NotImplementedError

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
            LakelogMember(self.folder / f"broker{node_id}", node_id, metadata, home)
            for node_id, home in enumerate(self.homes, 1)
        ]
        super()._launch()

    def _metadata(self) -> str:
        """Return the location of the metadata, which is ready."""
        return f"sqlite:{self.folder / 'metadata.db'}"


class LakelogOnZooKeeper(LakelogCluster):
    """Three `lakelog serve` with their metadata in a ZooKeeper ensemble of three servers."""

    name = "lakelog on ZooKeeper"

    def __init__(
        self, folder: Path, homes: Sequence[Home] = HOMES, store_homes: Sequence[Home] = HOMES
    ) -> None:
        super().__init__(folder, homes, store_homes)
        self._ensemble = ZooKeeperEnsemble(folder, store_homes)

    def _metadata(self) -> str:
        self._ensemble.__enter__()
        return f"zookeeper://{','.join(self._ensemble.servers)}/bench"

    def stop(self) -> None:
        super().stop()
        self._ensemble.__exit__(None, None, None)

    def kill_store(self) -> None:
        for number in range(1, SIZE + 1):
            self._ensemble.kill(number)

    def start_store(self) -> None:
        for number in range(1, SIZE + 1):
            self._ensemble.start(number)
        for number in range(1, SIZE + 1):
            self._ensemble.wait_for(number)


class KafkaCluster(Cluster):
    """Three Apache Kafka processes, each a broker and a controller of the quorum."""

    name = "Kafka"
    _roles: Sequence[str] = (_BROKER, _CONTROLLER)

    def __init__(
        self, folder: Path, homes: Sequence[Home] = HOMES, store_homes: Sequence[Home] = HOMES
    ) -> None:
        super().__init__(folder, homes, store_homes)
        self._controllers = self._quorum()
        self._members = [
            KafkaMember(self.folder / f"broker{number}", number, home, self._roles)
            for number, home in enumerate(homes, 1)
        ]
        self.brokers = list(self._members)
        cluster_id = run_storage_tool("random-uuid")
        voters = ",".join(voter.voter for voter in (self._controllers or self._members))
        for member in (*self._controllers, *self._members):
            member.format(cluster_id, voters)

    def _quorum(self) -> list[KafkaMember]:
        """Return the controllers that are processes of their own."""
        return []

    def _launch(self) -> None:
        """Start all at once: no controller of the quorum is ready without another."""
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.await_ready()

    def controller(self) -> int:
        return next(each for each in self._members if not each.has_ended()).quorum_leader()


class KafkaApart(KafkaCluster):
    """Three brokers of Apache Kafka, and the quorum in three processes of its own."""

    name = "Kafka, own controllers"
    _roles = (_BROKER,)

    def _quorum(self) -> list[KafkaMember]:
        return [
            KafkaMember(self.folder / f"controller{number}", SIZE + number, home, [_CONTROLLER])
            for number, home in enumerate(self.store_homes, 1)
        ]

    def _launch(self) -> None:
        self.start_store()
        super()._launch()

    def stop(self) -> None:
        super().stop()
        self.kill_store()

    def kill_store(self) -> None:
        for controller in self._controllers:
            controller.kill()

    def start_store(self) -> None:
        for controller in self._controllers:
            controller.launch()
        for controller in self._controllers:
            controller.await_ready()


CLUSTERS: dict[str, type[Cluster]] = {
    "lakelog": LakelogCluster,
    "zookeeper": LakelogOnZooKeeper,
    "kafka": KafkaCluster,
    "kafka-apart": KafkaApart,
}
