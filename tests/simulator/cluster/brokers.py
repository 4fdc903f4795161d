"""All brokers of a simulated cluster, as clients see them: one home with one name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lakelog.replica.partition import Partition
from simulator.brokers.host import BrokerHost
from simulator.checkers.observations import Place
from simulator.cluster.routing import RoutedConnection
from simulator.engine.process import Process
from simulator.engine.simulator import Simulator
from simulator.network.network import Network
from simulator.network.sockets import Address

HOME = "cluster"


class Clocks:
    """The wall clocks of all brokers."""

    def __init__(self, hosts: Sequence[BrokerHost]) -> None:
        self._hosts = hosts

    def spread_ms(self, since: float) -> float:
        """Return the largest spread of any broker's clock; see `SimulatedClock.spread_ms`."""
        return max(host.clock.spread_ms(since) for host in self._hosts)


class ClusterBrokers:
    """The home of all clients, groups and topics."""

    name = HOME
    suffix = ""

    def __init__(self, simulator: Simulator, hosts: list[BrokerHost]) -> None:
        self._simulator = simulator
        self.hosts = hosts
        self.removed: set[int] = set()
        """Node ids of brokers that will not return."""
        self.clock = Clocks(hosts)
        self.addresses: dict[int, Address] = {}
        """Of all brokers there have been."""
        self._starts_of_removed = 0

    def add(self, host: BrokerHost) -> None:
        """Add a broker."""
        self.hosts.append(host)
        self.addresses[host.node_id] = host.address

    def remove(self, host: BrokerHost) -> None:
        """Remove a broker that will not return; clients may still try to reach it."""
        self.hosts.remove(host)
        self.removed.add(host.node_id)
        self._starts_of_removed += host.starts

    def connect(
        self, network: Network, process: Process, on_late: Callable[[str, float], None]
    ) -> RoutedConnection:
        """Return a client's connections to all brokers."""
        rng = self._simulator.random_stream(f"{process.host} routes")
        return RoutedConnection(network, process, self.addresses, rng, on_late)

    @property
    def thread_s_max(self) -> float:
        return max(host.thread_s_max for host in self.hosts)

    @property
    def starts(self) -> int:
        """How many times brokers were started so far."""
        return self._starts_of_removed + sum(host.starts for host in self.hosts)

    def home_of(self, name: str) -> ClusterBrokers:
        """Return the cluster: it has no part that a name belongs to."""
        return self

    def forgets_producers(self, partition: Place, since: float) -> bool:
        """Return whether a producer of a partition may have expired since this time."""
        return self.clock.spread_ms(since) >= self.hosts[0].producer_expiration_ms

    @property
    def are_unfenced(self) -> bool:
        """Whether all brokers run, and the newest image that one of them has fences none."""
        images = [
            host.server.broker.metadata.image for host in self.hosts if host.server is not None
        ]
        newest = max(images, key=lambda image: image.end, default=None)
        return newest is not None and all(
            host.is_running
            and host.node_id in newest.brokers
            and not newest.brokers[host.node_id].is_fenced
            for host in self.hosts
        )

    def log_ends(self) -> dict[Place, int]:
        """Return the log end offsets of the leaders in the newest leader epochs."""
        return {
            partition: leader.log.log_end_offset for partition, leader in self.leaders().items()
        }

    def leaders(self) -> dict[Place, Partition]:
        """Return the leader of each partition, as far as a running broker leads it."""
        found: dict[Place, Partition] = {}
        for partition in self._partitions():
            topic_partition = partition.topic, partition.index
            known = found.get(topic_partition)
            if partition.role.is_leader and (
                known is None or known.leader_epoch < partition.leader_epoch
            ):
                found[topic_partition] = partition
        return found

    def _partitions(self) -> Iterator[Partition]:
        for host in self.hosts:
            if host.server is not None:
                yield from host.server.broker.partitions
