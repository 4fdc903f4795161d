"""The broker process: builds the object graph, starts it in order, and stops it in reverse.

Order of a start: the data folder is locked, the metadata log replayed, this start recorded in it
(which raises the leader epochs), logs are opened and recovered, the offsets that they may have lost
are recorded, groups are replayed, and only then are connections accepted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.key import ConfigError
from lakelog.base.errors import KafkaError
from lakelog.base.events import event
from lakelog.base.memory_budget import MemoryBudget, Share
from lakelog.metadata.errors import MetadataError, MetadataOffline
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import Record
from lakelog.replica.fetch_session import FetchSessions
from lakelog.replica.purgatory import Purgatory
from lakelog.runtime.loop_iterations import LoopIterations
from lakelog.server.appends.slow_batches import SlowBatches
from lakelog.server.authentication import BrokersApart, NoQuotas, RegisteredBrokers
from lakelog.server.broker import Broker, Settings
from lakelog.server.connections.listeners import ConnectionRegistry, Listeners
from lakelog.server.connections.sweep import ConnectionSweep
from lakelog.server.controller.control_plane import ControlPlane
from lakelog.server.controller.membership import KeptTopics
from lakelog.server.coordinators.local import Coordinators, ProducerIds
from lakelog.server.data_folder import DataFolder, FolderWatch
from lakelog.server.event_log import log_changes, log_elections, log_leaderless
from lakelog.server.monitoring.endpoint import Monitoring
from lakelog.server.monitoring.readiness import Stage
from lakelog.server.monitoring.sources import LoopWatch, Sources
from lakelog.server.options import Environment, ReadyInfo, ServeOptions, StartError
from lakelog.server.replication.replica_manager import ReplicaEvents, ReplicaManager
from lakelog.server.requests.admission import Admission
from lakelog.server.requests.dispatch import Dispatcher
from lakelog.server.requests.metrics import RequestMetrics
from lakelog.server.routes import advertised_apis, between_brokers, newer_api_versions, routes
from lakelog.server.topics.topics import Topics
from lakelog.server.upkeep.maintenance import Maintenance
from lakelog.server.upkeep.stored_checks import StoredChecks
from lakelog.storage.errors import StorageError

logger = logging.getLogger(__name__)


class _SharedParts(NamedTuple):
    """The parts that most others use."""

    budget: MemoryBudget
    connections: ConnectionRegistry
    purgatory: Purgatory
    checks: StoredChecks
    admission: Admission


def _shared_parts(options: ServeOptions, environment: Environment) -> _SharedParts:
    config, clock, tasks = options.config, environment.clock, environment.tasks
    budget = MemoryBudget(
        config.get_int("queued.max.request.bytes"),
        config.get_int("lakelog.coordinator.state.max.bytes"),
    )
    iterations = LoopIterations(clock, tasks)
    # A loop iteration runs its parts in the order in which they are added here: requests and large
    # responses before parked requests, so that a crowd of waits delays no client that has just
    # sent.
    connections = ConnectionRegistry(clock, iterations, budget)
    purgatory = Purgatory(clock, tasks, iterations)
    admission = Admission(BrokersApart(between_brokers()), NoQuotas())
    return _SharedParts(budget, connections, purgatory, StoredChecks(tasks), admission)


class Server:
    """One broker, from `start` to `stop`.

    Its parts, in the order in which they are built: the data folder, the control plane, the
    replicas, the coordinators, the requests of clients, monitoring and upkeep. Where a part calls a
    later one (a full disk starts retention, a new leader loads its coordinators), it gets a
    function that looks the later part up when it is called.
    """

    def __init__(self, options: ServeOptions, environment: Environment) -> None:
        self._options = options
        self._environment = environment
        shared = _shared_parts(options, environment)
        self._folder = folder = DataFolder(
            options,
            environment,
            retain_soon=lambda: self._maintenance.retain_soon(),
            over=self._on_shortage_over,
        )
        environment.metadata.watch_device(folder.directory.ownership.page_cache.on_failure)
        self._control = control = ControlPlane(options, environment, folder.shortages)
        self._replicas = ReplicaManager(
            options,
            environment,
            folder,
            control,
            shared.purgatory,
            shared.checks,
            self._replica_events(shared.admission),
        )
        topics = self._make_topics()
        producer_ids = ProducerIds(
            control.membership.reserve_producer_ids,
            environment.tasks,
            lambda: control.image.forgotten_epochs_end,
        )
        self._coordinators = self._make_coordinators(shared, topics, producer_ids)
        control.peers.watch_denial(self._coordinators.deny_lease)
        self.broker = self._make_broker(shared, topics, producer_ids)
        self.failure: MetadataError | None = None
        """The reason to stop: the metadata store has another history than this broker."""
        self._settings = Settings(self.broker)
        self._dispatcher = self._make_dispatcher(shared.connections)
        self._listeners = Listeners(
            options, environment, self._dispatcher, shared.connections, self._config
        )
        self.monitoring = Monitoring(self._make_sources(), lambda: self._coordinators.is_current)
        self._maintenance = self._make_maintenance(shared.connections)
        self._folder_watch = self._make_folder_watch()

    def _config(self) -> BrokerConfig:
        return self.broker.config

    def _replica_events(self, admission: Admission) -> ReplicaEvents:
        return ReplicaEvents(
            config=self._config,
            flush_soon=lambda partition: self._maintenance.flush_soon(partition),
            checkpointed=lambda: self._maintenance.checkpointed(),
            role_changed=lambda partition: self._coordinators.role_changed(partition),
            revoke=admission.revoke,
        )

    def _make_topics(self) -> Topics:
        return Topics(
            self._control.metadata,
            self._environment.random,
            self._folder.shortages.check_capacity,
            self._replicas.logs.waits,
            self._config,
            self._control.link,
            self._control.peers.reachable_brokers if self._options.is_clustered else None,
        )

    def _make_coordinators(
        self, shared: _SharedParts, topics: Topics, producer_ids: ProducerIds
    ) -> Coordinators:
        return Coordinators(
            self._options.config,
            self._environment,
            self._replicas.partitions,
            shared.purgatory,
            topics,
            producer_ids,
            self._control.metadata,
            shared.budget.state,
            shared.checks,
            self._options.node_id,
            self._control.peer,
        )

    def _make_broker(
        self, shared: _SharedParts, topics: Topics, producer_ids: ProducerIds
    ) -> Broker:
        options, environment, coordinators = self._options, self._environment, self._coordinators
        control, clock, tasks = self._control, environment.clock, environment.tasks
        return Broker(
            node_id=options.node_id,
            cluster_id="",
            data_path=options.data,
            clock=clock,
            random=environment.random,
            metadata=control.metadata,
            controller=control.controller,
            controller_link=control.link,
            partitions=self._replicas.partitions,
            purgatory=shared.purgatory,
            checks=shared.checks,
            request_memory=shared.connections.memory,
            slow_batches=SlowBatches(tasks, clock),
            shortages=self._folder.shortages,
            fetch_sessions=self._make_fetch_sessions(shared.purgatory, shared.budget.state),
            producer_ids=producer_ids,
            topics=topics,
            groups=coordinators.groups,
            transactions=coordinators.transactions,
            markers=coordinators.markers,
            verification=coordinators.verification,
            disk_space=self._folder.space,
            checkpointed=lambda: self._maintenance.checkpointed(from_reserve=True),
            advertised=options.advertise,
            static_config=options.config,
            requests=RequestMetrics(clock),
            admission=shared.admission,
            registered=RegisteredBrokers(control.metadata, tasks),
            failed_brokers=control.peers.failed_brokers,
            silence=control.peers.silence,
            relays=control.relays,
            advertised_apis=advertised_apis(in_cluster=options.is_clustered),
        )

    def _make_fetch_sessions(self, purgatory: Purgatory, share: Share) -> FetchSessions:
        partitions = self._replicas.partitions
        return FetchSessions(
            self._environment.random,
            lambda topic, index: partitions.get(topic, index) is not None,
            purgatory,
            slots_max=self._options.config.get_int("max.incremental.fetch.session.cache.slots"),
            share=share,
        )

    def _make_dispatcher(self, connections: ConnectionRegistry) -> Dispatcher:
        broker = self.broker
        return Dispatcher(
            routes(broker, in_cluster=self._options.is_clustered),
            newer_api_versions(broker),
            connections,
            self._environment.tasks,
            broker.requests,
            broker.admission,
            broker.partitions.note_unreadable,
        )

    def _make_sources(self) -> Sources:
        broker, environment = self.broker, self._environment
        fsyncs = environment.fsyncs
        return Sources(
            broker,
            self._dispatcher,
            LoopWatch(environment.clock, environment.tasks, broker.requests, fsyncs),
            fsyncs,
            environment.processes,
            self._control.peers,
            self._replicas.role_changes,
        )

    def _make_maintenance(self, connections: ConnectionRegistry) -> Maintenance:
        environment = self._environment
        sweep = ConnectionSweep(
            connections, self._config, environment.clock, self.broker.admission.release
        )
        return Maintenance(
            self._replicas.partitions,
            self._folder.directory,
            sweep.run,
            self._config,
            environment.clock,
            environment.disk,
            environment.tasks,
            self.monitoring.note_callback,
            self._folder.shortages,
            self.broker.checks,
        )

    def _make_folder_watch(self) -> FolderWatch:
        folder, membership = self._folder, self._control.membership
        return FolderWatch(
            folder.shortages,
            lambda: folder.directory.ownership.page_cache.has_failed,
            lambda is_read_only: membership.note_folder(is_read_only=is_read_only),
            self._environment.clock,
            self._environment.tasks,
        )

    # Starting

    async def start(self) -> None:
        """Start the broker. Raises `StartError`, after stopping the parts that had been started.

        A cancelled start stops them as well, and leaves the folder as clean as it was.
        """
        self._listeners.bind()
        try:
            await self.monitoring.start(self._options.http)
            await self._open()
        except BaseException:
            self._listeners.close()
            await self.monitoring.stop()
            raise
        self._listeners.start()
        if self._folder.reserve.is_spent:
            self._folder.shortages.note_full()
        self._maintenance.start()
        self._cleaner = self._maintenance.make_cleaner(self._environment.processes)
        self._cleaner.start()
        self._control.peers.start(self._control.image)
        if self._options.is_clustered:
            log_leaderless(self._options.node_id, self._control.image)
            self._folder_watch.start()
            self._control.membership.serve()
            self._coordinators.join_others()
        self._replicas.serve()
        self.monitoring.serving(self._cleaner)

    async def _open(self) -> None:
        folder, control = self._folder, self._control
        try:
            cluster_id = None
            if self._options.is_clustered:
                cluster_id = await control.join_store(create=not folder.has_logs())
            folder.open(cluster_id)
        except (StorageError, MetadataError, KafkaError, OSError) as error:
            await control.close()
            raise StartError(str(error)) from error
        try:
            await self._open_metadata()
            self.monitoring.stage = Stage.RECOVERING
            image = control.image
            await self._replicas.logs.load(image)
            if folder.directory.has_lost and not self._options.is_clustered:
                await control.forget_epochs()
            if self._options.is_clustered and self._replicas.logs.lost:
                await control.membership.report_loss(
                    folder.directory.ownership.meta.directory_id, self._replicas.logs.lost
                )
            folder.directory.ownership.trust_page_cache()
            await control.metadata.subscribe_since(image, self)
            if self._options.is_clustered:
                control.controller.start()
            self.monitoring.stage = Stage.LOADING
            await self._coordinators.load(control.image)
        except BaseException as error:
            control.controller.stop()
            self._coordinators.close()
            await control.close()
            asked = isinstance(error, asyncio.CancelledError)
            folder.directory.close(clean=asked and folder.directory.clean)
            if isinstance(error, StorageError | MetadataError | KafkaError | ConfigError | OSError):
                raise StartError(str(error)) from error
            raise

    async def _open_metadata(self) -> None:
        """Determine the cluster id, and record the start of this broker."""
        folder, control = self._folder, self._control
        if not self._options.is_clustered:
            await control.metadata.open(create=not folder.has_logs())
        self.broker.cluster_id = await control.choose_cluster_id(
            folder.directory.ownership.meta.cluster_id
        )
        kept = KeptTopics()
        if self._options.is_clustered:
            kept = await self._replicas.durable.begin(
                control.membership.epoch, control.membership.process
            )
        await control.register(
            self._listeners.endpoints(),
            self._listeners.advertised(),
            directory_id=folder.directory.ownership.meta.directory_id,
            previous_epoch=folder.directory.ownership.broker_epoch,
            kept=kept,
        )
        folder.directory.ownership.broker_epoch = control.membership.epoch
        self._settings.start(control.image)

    def watch_failure(self, callback: Callable[[], object]) -> None:
        """Call `callback` once if this broker has to stop by itself; `failure` is the reason.

        A single broker that cannot write its metadata still serves records.
        """

        def note(failure: MetadataError) -> None:
            logger.error("metadata: %s", failure, extra=event("metadata_refused"))
            if self._options.is_clustered or not isinstance(failure, MetadataOffline):
                self.failure = failure
                callback()

        def note_unregistered(failure: MetadataError) -> None:
            self.failure = failure
            callback()

        self._control.metadata.watch_failure(note)
        self._control.membership.watch_unregistered(note_unregistered)

    # Following the metadata log

    async def prepare(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        """See `lakelog.metadata.log.Subscriber`."""
        self._control.check(new)
        await self._replicas.logs.prepare(old, new, records)

    async def follow(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        log_changes(old, new, records)
        log_elections(self._options.node_id, old, new, records)
        self._settings.follow(old, new)
        self._control.follow(old, new)
        gone = await self._replicas.logs.follow(old, new, records)
        if gone:
            self._coordinators.on_topics_deleted(gone)
        self._coordinators.follow(old, new, records)

    # Running short

    def _on_shortage_over(self) -> None:
        """Create the logs for which the disk had no space, and load them into coordinators."""
        self._environment.tasks.spawn(self._catch_up(), name="catch up")

    async def _catch_up(self) -> None:
        await self._replicas.logs.make_waiting(lambda: self._control.image)
        await self._coordinators.load_missing(self._control.image)

    # Stopping

    @property
    def ready_info(self) -> ReadyInfo:
        return ReadyInfo(
            listeners=self._listeners.bound,
            data=self._options.data,
            node_id=self._options.node_id,
            cluster_id=self.broker.cluster_id,
        )

    async def stop(self) -> None:
        """Stop cleanly: the next start need not scan logs."""
        self.monitoring.stage = Stage.STOPPING
        self._folder_watch.stop()
        if self._options.is_clustered and self.failure is None:
            await self._control.membership.leave()
        self._listeners.close()
        self._replicas.stop_fetching()
        self._control.stop()
        for connection in list(self._dispatcher.connections):
            connection.close()
        self._folder.shortages.stop()
        self._coordinators.close()
        await self._cleaner.stop()
        self._replicas.logs.stop()
        await self._maintenance.stop()
        await self._control.close()
        await self._folder.close(self._replicas.partitions.high_watermarks)
        self._replicas.logs.close()
        await self.monitoring.stop()
