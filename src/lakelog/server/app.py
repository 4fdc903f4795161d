"""The broker process: builds the object graph, starts it in order, and stops it in reverse.

Order of a start: the data folder is locked, the metadata log replayed, this start recorded in it
(which raises the leader epochs), logs are opened and recovered, the offsets that they may have lost
are recorded, groups are replayed, and only then are connections accepted.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.key import ConfigError
from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import KafkaError
from lakelog.base.memory_budget import MemoryBudget, Share
from lakelog.base.uuids import encode_uuid, random_uuid
from lakelog.metadata.controller.brokers import (
    plan_cluster_id,
    plan_forget_epochs,
    plan_register_broker,
)
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.records import Record
from lakelog.replica.fetch_session import FetchSessions
from lakelog.replica.partition import Partition
from lakelog.replica.partitions import Partitions
from lakelog.replica.purgatory import Purgatory
from lakelog.replica.role import Role
from lakelog.runtime.turns import LoopTurns
from lakelog.server.appends.slow_batches import SlowBatches
from lakelog.server.auth.authorizer import AllowEveryone
from lakelog.server.broker import Broker
from lakelog.server.cluster.replicas import Replicas
from lakelog.server.cluster.topics import Topics
from lakelog.server.connections.listener import Acceptor
from lakelog.server.connections.registry import ConnectionRegistry
from lakelog.server.connections.sweep import ConnectionSweep
from lakelog.server.controller.controller import Controller
from lakelog.server.controller.link import ControllerLink
from lakelog.server.controller.membership import Membership
from lakelog.server.coordinators.local import Coordinators
from lakelog.server.coordinators.producer_ids import ProducerIds
from lakelog.server.environment import Environment
from lakelog.server.event_log.change_log import log_changes
from lakelog.server.monitoring.endpoint import Monitoring
from lakelog.server.monitoring.readiness import Stage
from lakelog.server.options import (
    ListenError,
    ReadyInfo,
    ServeOptions,
    StartError,
    is_every_interface,
    parse_address,
)
from lakelog.server.peers.peer import Peer, PeerSeams
from lakelog.server.peers.watch import PeerWatch
from lakelog.server.replication.fetcher import Fetcher
from lakelog.server.replication.in_sync import InSyncReplicas
from lakelog.server.replication.replication import Replication
from lakelog.server.requests.dispatch import Dispatcher
from lakelog.server.requests.gate import Gate
from lakelog.server.requests.metrics import RequestMetrics
from lakelog.server.requests.quotas import NoQuotas
from lakelog.server.routes import advertised_apis, newer_api_versions, routes
from lakelog.server.settings import Settings
from lakelog.server.upkeep.maintenance import Maintenance
from lakelog.server.upkeep.shortages import Shortages
from lakelog.server.upkeep.stored_checks import StoredChecks
from lakelog.storage.errors import StorageError
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.folder.reserve import SpaceReserve
from lakelog.storage.names import parse_dir_name
from lakelog.storage.producers.limit import ProducerLimit

__all__ = ["ReadyInfo", "ServeOptions", "Server", "StartError"]

logger = logging.getLogger(__name__)


def _producer_room(config: BrokerConfig) -> ProducerLimit:
    return ProducerLimit(
        config.get_int("lakelog.producer.ids.max"), config.get_int("producer.id.expiration.ms")
    )


class Server:
    """One broker, from `start` to `stop`."""

    def __init__(self, options: ServeOptions, environment: Environment) -> None:
        self._options = options
        self._environment = environment
        clock, tasks, random = environment.clock, environment.tasks, environment.random
        self._directory = LogDirectory(
            options.data,
            environment.disk,
            clock,
            random,
            max_open_files=environment.open_files_max,
            producers=_producer_room(options.config),
        )
        self._reserve = SpaceReserve(
            environment.disk,
            options.data,
            options.config.get_int("lakelog.disk.reserve.bytes"),
            self._directory.gate,
        )
        self._shortages = shortages = self._make_shortages()
        environment.metadata.watch_device(self._directory.distrust_page_cache)
        self._metadata = MetadataLog(
            environment.metadata, tasks, random, broker_id=options.node_id, space=shortages
        )
        self._link = ControllerLink(options.node_id, self._metadata, self._peer, clock, tasks)
        self._controller = Controller(
            options.node_id,
            self._metadata,
            tasks,
            prefers_first=options.config.get_bool("auto.leader.rebalance.enable"),
        )
        self._membership = Membership(
            options.node_id, self._metadata, self._link, self._controller, tasks
        )
        self._partitions = Partitions(self._role_elsewhere)
        self._acceptors: list[Acceptor] = []
        topics = self._make_topics(shortages)
        producer_ids = ProducerIds(self._membership.reserve_producer_ids, tasks)
        budget = MemoryBudget(
            options.config.get_int("queued.max.request.bytes"),
            options.config.get_int("lakelog.coordinator.state.max.bytes"),
        )
        turns = LoopTurns(clock, tasks)
        connections = ConnectionRegistry(clock, turns, budget)
        purgatory, checks = Purgatory(clock, tasks, turns), StoredChecks(tasks)
        parts = (options.config, environment, self._partitions, purgatory, topics, producer_ids)
        self._coordinators = coordinators = Coordinators(
            *parts, self._metadata, budget.state, checks, options.node_id, self._peer
        )
        self.broker = Broker(
            node_id=options.node_id,
            cluster_id="",
            data_path=options.data,
            clock=clock,
            random=random,
            metadata=self._metadata,
            controller=self._controller,
            controller_link=self._link,
            partitions=self._partitions,
            purgatory=purgatory,
            checks=checks,
            slow_batches=SlowBatches(tasks, connections.memory, clock),
            shortages=shortages,
            fetch_sessions=self._make_fetch_sessions(budget.state),
            producer_ids=producer_ids,
            topics=topics,
            groups=coordinators.groups,
            transactions=coordinators.transactions,
            markers=coordinators.markers,
            verification=coordinators.verification,
            disk_space=lambda: environment.disk.space(options.data),
            checkpointed=lambda: self._maintenance.checkpointed(from_reserve=True),
            advertised=options.advertise,
            static_config=options.config,
            requests=RequestMetrics(clock),
            gate=Gate(AllowEveryone(), NoQuotas()),
            advertised_apis=advertised_apis(in_cluster=options.is_clustered),
        )
        self._settings = Settings(self.broker)
        self._dispatcher = self._make_dispatcher(connections)
        self._peers = self._make_peers()
        self._monitoring = Monitoring(
            self.broker,
            self._dispatcher,
            clock,
            tasks,
            environment.fsyncs,
            environment.processes,
            self._peers,
        )
        self._maintenance = self._make_maintenance()
        self._replication = Replication(self._make_fetcher)
        self._in_sync = self._make_in_sync()
        self._replicas = self._make_replicas(purgatory)

    def _role_elsewhere(self, topic: str | bytes, index: int) -> Role | None:
        """Return this broker's role in a partition that other brokers hold, for `Partitions`."""
        image = self._metadata.image
        found = image.topic(topic) if isinstance(topic, str) else image.topic_by_id(topic)
        partition = found.partition(index) if found is not None else None
        if partition is None or self._options.node_id in partition.replicas:
            return None
        return Role.in_image(partition, self._options.node_id)

    def _make_shortages(self) -> Shortages:
        environment = self._environment
        return Shortages(
            self._options.data,
            environment.disk,
            environment.tasks,
            self._reserve,
            lambda: environment.tasks.call_soon(self._maintenance.retain_soon),
            self._on_shortage_over,
        )

    def _make_topics(self, shortages: Shortages) -> Topics:
        return Topics(
            self._metadata,
            self._environment.random,
            shortages.check_room,
            lambda topic_id: self._replicas.waits(topic_id),
            lambda: self.broker.config,
            self._link,
        )

    def _make_replicas(self, purgatory: Purgatory) -> Replicas:
        return Replicas(
            self._options.node_id,
            self._directory,
            self._partitions,
            lambda: self.broker.config,
            self._maintenance.flush_soon,
            lambda partition: purgatory.check(partition.key),
            self._on_role_changed,
            self._environment.clock,
            self._environment.tasks,
            self._maintenance.checkpointed,
            self._shortages.note,
            self.broker.gate.revoke,
        )

    def _on_role_changed(self, partition: Partition) -> None:
        self._replication.note_role(partition)
        self._in_sync.note_role(partition)
        self._coordinators.role_changed(partition)

    def _make_fetcher(self, leader_id: int) -> Fetcher:
        node_id, environment = self._options.node_id, self._environment
        return Fetcher(
            node_id,
            leader_id,
            lambda: self._peers.leaders.get(leader_id),
            lambda: self._metadata.image.brokers[node_id].epoch,
            self.broker.checks,
            environment.clock,
            environment.tasks,
        )

    def _make_in_sync(self) -> InSyncReplicas:
        environment, config = self._environment, self._options.config
        return InSyncReplicas(
            self._options.node_id,
            lambda: self._metadata.image,
            lambda request: self._link.carry_out(
                request, lambda: self._controller.alter_partition(request)
            ),
            config.get_int("replica.lag.time.max.ms"),
            environment.clock,
            environment.tasks,
        )

    def _make_dispatcher(self, connections: ConnectionRegistry) -> Dispatcher:
        broker, environment = self.broker, self._environment
        return Dispatcher(
            routes(broker, in_cluster=self._options.is_clustered),
            newer_api_versions(broker),
            connections,
            environment.tasks,
            broker.requests,
            broker.gate,
        )

    def _make_peers(self) -> PeerWatch:
        node_id, environment = self._options.node_id, self._environment
        listener_name = self._wanted_listeners()[0][0]
        seams = PeerSeams(
            node_id, environment.net, environment.tasks, environment.clock, environment.random
        )
        return PeerWatch(node_id, listener_name, seams)

    def _peer(self, node_id: int) -> Peer | None:
        """Return the connection to a broker, also before this one follows the metadata."""
        self._peers.follow(self._metadata.image)
        return self._peers.peers.get(node_id)

    def _make_fetch_sessions(self, share: Share) -> FetchSessions:
        return FetchSessions(
            self._environment.random,
            lambda topic, index: self._partitions.get(topic, index) is not None,
            slots_max=self._options.config.get_int("max.incremental.fetch.session.cache.slots"),
            share=share,
        )

    def _make_maintenance(self) -> Maintenance:
        environment = self._environment
        sweep = ConnectionSweep(
            self._dispatcher.connections,
            lambda: self.broker.config,
            environment.clock,
            self.broker.gate.release,
        )
        return Maintenance(
            self._partitions,
            self._directory,
            sweep.run,
            lambda: self.broker.config,
            environment.clock,
            environment.disk,
            environment.tasks,
            self._monitoring.note_callback,
            self._shortages,
            self.broker.checks,
        )

    # Starting

    async def start(self) -> None:
        """Start the broker. Raises `StartError`, after stopping the parts that had been started.

        A cancelled start stops them as well, and leaves the folder as clean as it was.
        """
        if self._options.is_clustered:
            self._check_advertised()
        self._bind()
        try:
            await self._monitoring.start(self._options.http)
            await self._open()
        except BaseException:
            self._close_listeners()
            await self._monitoring.stop()
            raise
        for acceptor in self._acceptors:
            acceptor.start()
        if self._reserve.is_spent:
            self._shortages.note_full()
        self._maintenance.start()
        self._cleaner = self._maintenance.make_cleaner(self._environment.processes)
        self._cleaner.start()
        self._peers.start(self._metadata.image)
        if self._options.is_clustered:
            self._membership.serve()
            self._in_sync.start()
        self._monitoring.serving(self._cleaner)

    async def _open(self) -> None:
        try:
            cluster_id = await self._join_store() if self._options.is_clustered else None
            self._directory.open(cluster_id, self._options.node_id)
            self._reserve.open()
        except (StorageError, MetadataError, KafkaError, OSError) as error:
            await self._metadata.close()
            raise StartError(str(error)) from error
        try:
            await self._open_metadata()
            self._monitoring.stage = Stage.RECOVERING
            image = self._metadata.image
            await self._replicas.load(image)
            if self._directory.has_lost and not self._options.is_clustered:
                await self._metadata.submit(plan_forget_epochs, from_reserve=True)
            self._directory.trust_page_cache()
            await self._metadata.subscribe_since(image, self)
            if self._options.is_clustered:
                self._controller.start()
            self._monitoring.stage = Stage.LOADING
            await self._coordinators.load(self._metadata.image)
        except BaseException as error:
            self._controller.stop()
            self._coordinators.close()
            await self._metadata.close()
            asked = isinstance(error, asyncio.CancelledError)
            self._directory.close(clean=asked and self._directory.clean)
            if isinstance(error, StorageError | MetadataError | KafkaError | ConfigError | OSError):
                raise StartError(str(error)) from error
            raise

    async def _join_store(self) -> str | None:
        """Open a metadata store that brokers share; return its cluster id, None in a new store.

        The store is opened before the folder, because a new folder joins the store's cluster.
        """
        await self._metadata.open(create=not self._has_logs())
        while self._metadata.image.cluster_id is None and not self._link.is_here:
            await self._link.pause()  # until the controller has chosen the id
            await self._metadata.refresh()
        return self._metadata.image.cluster_id

    def _has_logs(self) -> bool:
        disk, data = self._environment.disk, self._options.data
        names = disk.list(data) if disk.exists(data) else ()
        return any(parse_dir_name(name) is not None for name in names)

    async def _open_metadata(self) -> None:
        """Determine the cluster id, and record the start of this broker."""
        node_id, random = self._options.node_id, self._environment.random
        if not self._options.is_clustered:
            await self._metadata.open(create=not self._has_logs())
        fresh = encode_uuid(random_uuid(random))
        known = self._directory.cluster_id
        self.broker.cluster_id = await self._metadata.submit(
            lambda image: plan_cluster_id(image, known, fresh), from_reserve=True
        )
        given = self._options.config.get("broker.rack")
        rack = given if isinstance(given, str) else None
        if self._options.is_clustered:
            has_lost = self._directory.has_lost_page_cache
            await self._membership.register(self._own_endpoints(), rack, has_lost=has_lost)
        else:
            await self._metadata.submit(
                lambda image: plan_register_broker(
                    image,
                    node_id,
                    self._metadata.incarnation_id,
                    endpoints=self._advertised_endpoints(),
                    rack=rack,
                ),
                from_reserve=True,
            )
        self._settings.start(self._metadata.image)

    def _advertised_endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(
            Endpoint(name, host, port) for name, (host, port) in self._options.advertise.items()
        )

    def _own_endpoints(self) -> tuple[Endpoint, ...]:
        """Return an address of each listener: the advertised one, else the bound one."""
        addresses = {each.name: each.address for each in self._acceptors} | dict(
            self._options.advertise
        )
        return tuple(Endpoint(name, *address) for name, address in addresses.items())

    def _check_advertised(self) -> None:
        """Raise `StartError` for a listener without an address that other brokers can use."""
        for name, host, _ in self._wanted_listeners():
            if is_every_interface(host) and name not in self._options.advertise:
                raise StartError(
                    f"listener {name} listens on every interface, and the other brokers of the "
                    f"cluster need one address: add --advertise {name}=HOST:PORT"
                )

    def _bind(self) -> None:
        environment = self._environment
        backlog = self._options.config.get_int("socket.listen.backlog.size")
        for name, host, port in self._wanted_listeners():
            try:
                listener = environment.net.listen(host, port, backlog=backlog)
            except OSError as error:
                self._close_listeners()
                raise ListenError(f"{host}:{port}", error) from error
            self._acceptors.append(
                Acceptor(
                    name,
                    listener,
                    self._dispatcher,
                    self._dispatcher.connections,
                    environment.net,
                    environment.disk,
                    environment.tasks,
                    environment.clock,
                    lambda: self.broker.config,
                    environment.connections_max,
                )
            )

    def _wanted_listeners(self) -> list[tuple[str, str, int]]:
        listen = self._options.listen
        if not listen:
            return [(end.name, end.host, end.port) for end in self._options.config.listeners]
        return [("PLAINTEXT", *parse_address(listen))]

    # Following the metadata log

    async def prepare(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        """See `lakelog.metadata.log.Subscriber`."""
        await self._replicas.prepare(old, new, records)

    async def follow(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        log_changes(old, new, records)
        self._settings.follow(old, new)
        if new.brokers is not old.brokers:
            self._peers.follow(new)
            self._membership.follow(new)
        gone = await self._replicas.follow(old, new, records)
        if gone:
            self._coordinators.on_topics_deleted(gone)
            self._wake_fetches(old, gone)
        self._coordinators.follow(old, new, records)

    def _wake_fetches(self, old: MetadataImage, gone: list[tuple[str, bytes]]) -> None:
        """Answer fetches that wait on a deleted topic with an error."""
        for _, topic_id in gone:
            topic = old.topic_by_id(topic_id)
            for index in sorted(topic.partitions) if topic is not None else ():
                self.broker.purgatory.check((topic_id, index))

    # Running short

    def _on_shortage_over(self) -> None:
        """Create the logs for which the disk had no space, and load them into coordinators."""
        self._environment.tasks.spawn(self._catch_up(), name="catch up")

    async def _catch_up(self) -> None:
        await self._replicas.make_waiting(lambda: self._metadata.image)
        await self._coordinators.load_missing(self._metadata.image)

    # Stopping

    @property
    def ready_info(self) -> ReadyInfo:
        return ReadyInfo(
            listeners=tuple((entry.name, *entry.address) for entry in self._acceptors),
            data=self._options.data,
            node_id=self._options.node_id,
            cluster_id=self.broker.cluster_id,
        )

    async def stop(self) -> None:
        """Stop cleanly: the next start need not scan logs."""
        self._monitoring.stage = Stage.STOPPING
        if self._options.is_clustered:
            await self._membership.leave()
        self._controller.stop()
        self._close_listeners()
        self._in_sync.stop()
        self._replication.stop()
        self._peers.stop()
        for connection in list(self._dispatcher.connections):
            connection.close()
        self._shortages.stop()
        self._coordinators.close()
        await self._cleaner.stop()
        self._replicas.stop()
        await self._maintenance.stop()
        await self._metadata.close()
        await self._close_directory()
        self._replicas.close()
        await self._monitoring.stop()

    async def _close_directory(self) -> None:
        """Close the logs in threads that wait for the device together.

        So one commit of the file system's journal serves all. Nothing else runs beside them.
        """
        offload = self._environment.tasks.offload
        with closing(self._directory.closing(self._partitions.high_watermarks)) as steps:
            for works in steps:
                await asyncio.gather(*(offload("close", work) for work in works))

    def _close_listeners(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
