"""The parts of the broker that request handlers use, by name, and its settings in force.

`Broker` decides nothing and does no I/O; `app` builds it. `Settings` overrides the settings of the
start by later ones. `serve --set` overrides values that earlier runs have stored. A value that is
set while the broker runs overrides `--set`, so the newest setting counts.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.key import ConfigError
from lakelog.base.events import event
from lakelog.coordinator.group.coordinator import GroupCoordinator
from lakelog.coordinator.transaction.coordinator import TransactionCoordinator
from lakelog.metadata.describe_configs import effective_broker_config
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.records import ResourceType
from lakelog.protocol.connections import ApiVersion
from lakelog.protocol.metadata import LeaderIdAndEpoch, NodeEndpoint
from lakelog.replica.fetch_session import FetchSessions
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.api import Clock, Random
from lakelog.server.appends.slow_batches import SlowBatches
from lakelog.server.authentication import RegisteredBrokers
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.receive_buffer import RequestMemory
from lakelog.server.controller.controller import Controller
from lakelog.server.controller.relays import ControllerLink, Relays
from lakelog.server.coordinators.local import ProducerIds
from lakelog.server.coordinators.markers import LocalMarkers
from lakelog.server.coordinators.verification import ClusterVerification
from lakelog.server.inter_broker.reachable_brokers import FailedBrokers
from lakelog.server.inter_broker.silence import Silence
from lakelog.server.requests.admission import Admission
from lakelog.server.requests.metrics import RequestMetrics
from lakelog.server.topics.responses import KnownMetadata
from lakelog.server.topics.topics import Topics
from lakelog.server.upkeep.shortages import Shortages
from lakelog.server.upkeep.stored_checks import StoredChecks

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as a response to a client describes it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(slots=True)
class Broker:
    """One per process. `advertised` maps a listener's name to the address in responses to clients.

    `checkpointed` waits until the log start offsets are durable, and returns whether they are.
    """

    node_id: int
    cluster_id: str
    data_path: Path
    clock: Clock
    random: Random
    metadata: MetadataLog
    controller: Controller
    controller_link: ControllerLink
    partitions: PartitionRegistry
    purgatory: Purgatory
    checks: StoredChecks
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    topics: Topics
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: LocalMarkers
    verification: ClusterVerification
    disk_space: Callable[[], tuple[int, int]]
    checkpointed: Callable[[], Awaitable[bool]]
    advertised: Mapping[str, tuple[str, int]]
    static_config: BrokerConfig
    requests: RequestMetrics
    admission: Admission
    registered: RegisteredBrokers
    failed_brokers: FailedBrokers
    silence: Silence
    relays: Relays
    request_memory: RequestMemory
    slow_batches: SlowBatches
    shortages: Shortages
    advertised_apis: list[ApiVersion]
    """In every response to ApiVersions."""
    config: BrokerConfig = field(init=False)
    fetch_bytes_max: int = field(init=False)
    known_metadata: KnownMetadata = field(default_factory=KnownMetadata)
    noted_starts: dict[Partition, int] = field(default_factory=dict)
    """Log start offsets before deletions of records that are not durable yet."""

    def __post_init__(self) -> None:
        self.use_config(self.static_config)

    def use_config(self, config: BrokerConfig) -> None:
        """Apply a configuration; called at each dynamic change."""
        self.config = config
        self.fetch_bytes_max = config.get_int("fetch.max.bytes")
        self.requests.log_slower_than(config.get_int("lakelog.slow.request.ms"))
        self.admission.revoke()

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def self_for(self, connection: Connection) -> Node:
        """Return this broker with an address that the client of `connection` can reach.

        Without an advertised address that is the local address of the connection: right on
        loopback, in a LAN and with several interfaces.
        """
        host, port = self.advertised.get(connection.session.listener_name, connection.session.local)
        own = self.image.brokers.get(self.node_id)
        return Node(self.node_id, host, port, own.rack if own is not None else None)

    def nodes_for(self, connection: Connection) -> list[Node]:
        """Return every unfenced broker that has an address; this one as `self_for` does."""
        others = self._others_for(connection, is_fenced=False)
        return [self.self_for(connection), *others]

    def fenced_nodes_for(self, connection: Connection) -> list[Node]:
        """Return the other brokers that are registered and fenced, if they have an address."""
        return list(self._others_for(connection, is_fenced=True))

    def _others_for(self, connection: Connection, *, is_fenced: bool) -> Iterator[Node]:
        # The order of the map differs between processes.
        for _, broker in sorted(self.image.brokers.items()):
            endpoint = broker.endpoint(connection.session.listener_name)
            is_wanted = broker.broker_id != self.node_id and broker.is_fenced == is_fenced
            if is_wanted and endpoint is not None:
                yield Node(broker.broker_id, *endpoint[1:3], broker.rack, is_fenced)

    def node_for(self, connection: Connection, node_id: int) -> Node | None:
        """Return one broker, or None if it is unknown or has no address."""
        if node_id == self.node_id:
            return self.self_for(connection)
        nodes = self.nodes_for(connection)
        return next((node for node in nodes if node.node_id == node_id), None)

    def endpoints_of(
        self, connection: Connection, leaders: Iterable[LeaderIdAndEpoch]
    ) -> list[NodeEndpoint]:
        """Return the addresses of the known leaders, for a response of a broker that is not one."""
        leader_ids = {leader.leader_id for leader in leaders if leader.leader_id >= 0}
        if not leader_ids:
            return []
        return [
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in self.nodes_for(connection)
            if node.node_id in leader_ids
        ]


class Settings:
    """Keeps `broker.config`, and which static settings override stored ones."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def start(self, image: MetadataImage) -> None:
        """Warn of other stored values that the command line overrides."""
        self._use(image)
        static = self._broker.static_config
        for key in sorted(static.forced):
            for target, value in self._stored(image, key).items():
                if value == static.static[key]:
                    continue
                logger.warning(
                    "%s=%s of the command line overrules the stored value %s until the stored "
                    "value changes; `lakelog config set %s --unset %s` removes it",
                    key,
                    static.static[key],
                    value,
                    target,
                    key,
                    extra=event("stored_setting_overruled", key=key),
                )

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Apply the settings of a new image."""
        if new.config_map is old.config_map:
            return
        forced = self._broker.static_config.forced
        kept = {key for key in forced if self._stored(old, key) == self._stored(new, key)}
        if kept != forced:
            self._broker.static_config = self._broker.static_config.with_forced(kept)
        self._use(new)

    def _use(self, image: MetadataImage) -> None:
        static = self._broker.static_config
        try:
            self._broker.use_config(effective_broker_config(image, static, self._broker.node_id))
        except ConfigError as error:
            logger.warning(
                "dynamic configuration is ignored: %s",
                error,
                extra=event("dynamic_config_ignored"),
            )

    def _stored(self, image: MetadataImage, key: str) -> dict[str, str]:
        """Return the stored values of a key, for all brokers and for this one.

        The keys are the options of `lakelog config` that name the brokers.
        """
        node_id = self._broker.node_id
        targets = {"--all-brokers": "", f"--broker {node_id}": str(node_id)}
        layers = {
            target: image.configs(ResourceType.BROKER, name) for target, name in targets.items()
        }
        return {target: layer[key] for target, layer in layers.items() if key in layer}
