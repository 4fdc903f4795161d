"""The controller's side of requests between brokers, and the fencing of dead brokers.

Every broker has one of these; only that of the elected controller can commit its plans, the others
raise NOT_CONTROLLER.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import FailingTask, event
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.metadata.controller.brokers import (
    FeatureUpdate,
    check_broker_epoch,
    check_supported,
    is_noted,
    last_epoch,
    plan_fence,
    plan_forget_epochs,
    plan_join,
    plan_lose,
    plan_producer_ids,
    plan_read_only,
    plan_unfence,
    plan_unregister,
    plan_update_features,
)
from lakelog.metadata.controller.leadership import (
    AlteredIsr,
    ProposedIsr,
    plan_alter_partitions,
    plan_election_settings,
    plan_failed_replicas,
)
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.failover import Failure
from lakelog.metadata.features import SupportedLevels
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import NO_DIRECTORY
from lakelog.metadata.store.api import ControllerTerm
from lakelog.metrics import Durations
from lakelog.protocol.brokers import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    PartitionData,
)
from lakelog.runtime.api import Clock, Tasks, Timer
from lakelog.server.authentication import Process
from lakelog.server.controller.declared_levels import DeclaredLevels
from lakelog.server.controller.lease_grants import LeaseGrants
from lakelog.server.inter_broker.reachable_brokers import ReachableBrokers
from lakelog.server.inter_broker.silence import NONE, Silence

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
_RETRY_S_MAX = 8.0
_SETTLED = 0.55
"""Part of a session at the begin of a term in which silence fences no broker. A broker counts on
being seen by the controller that it knows for half a session (`lakelog.server.coordinators.lease`),
and clocks drift."""
_RUNS = 0.3
"""Part of a session since the last heartbeat in the store of a broker that runs. A paused broker
made its last call at most a sixth of a session before its last heartbeat, and readers of ZooKeeper
find that up to a fifth late: longer than seven tenths of a session after the call."""
_LOOKS_PER_SESSION = 12
"""At a broker that may be cut off or paused."""


class Controller:
    """The decisions that only the controller commits, from `start` to `stop`.

    Args:
        node_id: of this broker.
        config: of this broker. Its settings about elections become the cluster's, unless the
            cluster has such settings.
        declared: the feature levels of other brokers.
        reachable_brokers: learns which brokers have sent heartbeats.
        silence: of other brokers, as this one sees it.
    """

    def __init__(
        self,
        node_id: int,
        metadata: MetadataLog,
        clock: Clock,
        tasks: Tasks,
        config: BrokerConfig,
        declared: DeclaredLevels,
        reachable_brokers: ReachableBrokers,
        silence: Silence,
    ) -> None:
        self._reachable_brokers = reachable_brokers
        self._silence = silence
        self._term: ControllerTerm | None = None
        self._since_s = 0.0
        """When this broker learned of the term, if it is the controller."""
        self._declared = declared
        self._clock = clock
        self.elections = Durations()
        """From the report of a dead broker to the commit of the new leaders."""
        self._config = config
        self._node_id = node_id
        self._metadata = metadata
        self._tasks = tasks
        session_s = config.get_int("broker.session.timeout.ms") / 1000
        self.lease_grants = LeaseGrants(session_s, clock)
        self._session_s = session_s
        self._settled_s = _SETTLED * session_s
        self._fencing: Any = None
        self._task = FailingTask(logger, "the fencing of brokers")
        self._is_due = False
        self._reported_at: float | None = None
        self._retry: Timer | None = None
        self._retry_at_s = 0.0
        self._retry_s = _RETRY_S
        self._stopped = False

    # Requests of brokers

    async def register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        """Register a process of a broker, which is fenced until it asks to be unfenced.

        A request may arrive after its process has ended: only a live process is registered.
        """
        try:
            epoch = await self._register(request)
        except KafkaError as error:
            return BrokerRegistrationResponse(error_code=error.code)
        return BrokerRegistrationResponse(broker_epoch=epoch)

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """Reserve a block of producer ids for a registered broker; an error is a code."""
        try:
            return await self.reserve_producer_ids(request)
        except KafkaError as error:
            return AllocateProducerIdsResponse(error_code=error.code)

    async def reserve_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """Reserve a block of producer ids. Raises `KafkaError` as `MetadataLog.submit`."""

        def plan(image: MetadataImage) -> Plan[range]:
            check_broker_epoch(image, request.broker_id, request.broker_epoch)
            return plan_producer_ids(image, request.broker_id)

        block = await self._metadata.submit(plan)
        return AllocateProducerIdsResponse(
            producer_id_start=block.start, producer_id_len=len(block)
        )

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """Unfence a broker that has caught up, or fence a stopping broker.

        A broker with an offline folder is fenced, and its replicas are not eligible any more.
        """
        try:
            response = await self._heartbeat(request)
        except KafkaError as error:
            return BrokerHeartbeatResponse(error_code=error.code)
        is_controller = self._metadata.controller_id == self._node_id
        deafness = self._silence.deafness
        if deafness.denial(request.broker_id, is_controller=is_controller) == NONE:
            response.answered_by = self._node_id
        return response

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change the ISRs of partitions that a broker leads."""
        proposals = _proposals(request)

        def plan(image: MetadataImage) -> Plan[list[AlteredIsr]]:
            return plan_alter_partitions(
                image,
                request.broker_id,
                request.broker_epoch,
                proposals,
                prefers_first=self._config.get_bool("auto.leader.rebalance.enable"),
            )

        try:
            results = await self._metadata.submit(plan)
        except KafkaError as error:
            return AlterPartitionResponse(error_code=error.code)
        return AlterPartitionResponse(topics=_altered(results))

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool
    ) -> None:
        """Finalize levels. Raises `KafkaError` as `plan_update_features`, `MetadataLog.submit`."""
        declared = await self._declared.of(self._metadata.image) if updates else {}
        await self._metadata.submit(
            lambda image: plan_update_features(
                image, updates, declared, validate_only=validate_only
            )
        )

    async def unregister(self, broker_id: int) -> None:
        """Remove the registration of a broker that will not return.

        Raises `KafkaError` as `plan_unregister` and `MetadataLog.submit`.
        """
        # Read before the live processes: a process that starts in between has a higher epoch.
        broker = self._metadata.image.brokers.get(broker_id)
        live = await self._live_brokers()
        ended = broker.epoch if broker is not None and broker_id not in live else None
        await self._metadata.submit(lambda image: plan_unregister(image, broker_id, ended))
        logger.info(
            "Unregistered broker %d",
            broker_id,
            extra=event("broker_unregistered", broker=broker_id),
        )

    async def _register(self, request: BrokerRegistrationRequest) -> int:
        # Read before the live processes: if another process registers in between, the plan finds
        # its epoch.
        seen = last_epoch(self._metadata.image, request.broker_id)
        live = (await self._live_brokers()).get(request.broker_id)
        if live is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"the metadata store knows no live process of broker {request.broker_id}",
            )
        if live != request.incarnation_id:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"another process of broker {request.broker_id} is alive",
            )
        return await self._metadata.submit(
            lambda image: _registered(image, request, self._config, seen)
        )

    async def _live_brokers(self) -> Mapping[int, bytes]:
        """Return the live processes by broker id. Raises `KafkaError`."""
        try:
            return await self._metadata.live_brokers()
        except MetadataError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def _heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        broker_id, epoch = request.broker_id, request.broker_epoch
        image, is_direct = self._metadata.image, request.via_broker in (-1, self._node_id)
        process = Process(broker_id, check_broker_epoch(image, broker_id, epoch).incarnation_id)
        # After the check of the epoch: a broker between may send on a request of a former process.
        note = self._silence.note_request if is_direct else self._silence.note_relayed
        note(broker_id)
        if request.want_shut_down:
            # Fenced before it closes: its partitions have new leaders while it still answers their
            # clients with these.
            await self._fence({broker_id: epoch}, "stops")
            return BrokerHeartbeatResponse(is_caught_up=True, should_shut_down=True)
        if request.failed_replicas:
            await self._note_failed(request)
        elif request.offline_log_dirs:
            await self._metadata.submit(lambda image: _lost(image, broker_id, epoch))
        await self._note_folder(broker_id, epoch, is_read_only=request.is_read_only)
        # A broker that lags would be made leader with an old image, and serve topics that no longer
        # exist or miss its own leaderships (KIP-841).
        is_caught_up = request.current_metadata_offset + 1 >= image.end
        if is_caught_up and not request.want_fence:
            await self._unfence(process, epoch)
        is_fenced = check_broker_epoch(self._metadata.image, broker_id, epoch).is_fenced
        return BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=is_fenced)

    async def _note_failed(self, request: BrokerHeartbeatRequest) -> None:
        failed = {
            (replica.topic_id, replica.partition_index): Failure(
                replica.leader_epoch, replica.is_offline
            )
            for replica in request.failed_replicas
        }
        broker_id, epoch = request.broker_id, request.broker_epoch
        await self._metadata.submit(lambda image: _failed(image, broker_id, epoch, failed))

    async def _note_folder(self, broker_id: int, epoch: int, *, is_read_only: bool) -> None:
        """Move the leaderships of a broker that cannot write; let it join ISRs when it can."""
        if is_noted(self._metadata.image, broker_id, is_read_only=is_read_only):
            return
        is_news = await self._metadata.submit(
            lambda image: plan_read_only(image, broker_id, epoch, is_read_only=is_read_only)
        )
        if is_news and is_read_only:
            logger.error(
                "Broker %d cannot write to its data folder",
                broker_id,
                extra=event("broker_read_only", broker=broker_id),
            )
        elif is_news:
            logger.info(
                "Broker %d can write to its data folder again",
                broker_id,
                extra=event("broker_writable", broker=broker_id),
            )

    async def _unfence(self, process: Process, epoch: int) -> None:
        """Unfence a live process; a heartbeat may arrive after the death of its sender."""
        broker_id = process.node_id
        if (await self._live_brokers()).get(broker_id) != process.incarnation_id:
            return
        # A broker that comes and goes would be a leader for a moment each time.
        if not self._silence.is_steady(broker_id):
            return
        self._reachable_brokers.note(process)
        await self._metadata.submit(lambda image: plan_unfence(image, broker_id, epoch))
        # If the process has died since the read of the store, the report of its death may have come
        # before this change, when the broker was still fenced.
        self._on_brokers()

    # Dead brokers

    def start(self) -> None:
        """Fence dead brokers from now on, while this broker is the controller."""
        self._metadata.watch_brokers(self._on_brokers)
        self._on_brokers()

    def stop(self) -> None:
        """Fence no brokers any more."""
        self._stopped = True
        self._cancel_retry()

    def note_end(self, broker_id: int) -> None:
        """Fence a broker whose process has ended, if the store counts it as dead, without delay."""
        if self.lease_grants.release(broker_id):
            self._on_brokers()

    def _on_brokers(self) -> None:
        self._is_due = True
        if self._reported_at is None:
            self._reported_at = self._clock.monotonic()
        self._cancel_retry()
        if self._fencing is None and not self._stopped:
            self._fencing = self._tasks.spawn(self._fence_dead(), name="fence brokers")

    async def _fence_dead(self) -> None:
        """Run until no report of a change is left."""
        try:
            while self._is_due and not self._stopped:
                self._is_due = False
                await self._fence_once()
        except (KafkaError, MetadataError) as error:
            # One line for one time without the store.
            if not self._stopped and self._retry_s == _RETRY_S:
                _log_failure(error)
            self._retry_later()
        except Exception as bug:  # noqa: BLE001 - dead brokers would stay leaders
            self._task.failed(bug)
            self._retry_later()
        else:
            self._retry_s = _RETRY_S
            self._task.succeeded()
        finally:
            self._fencing = None

    async def _fence_once(self) -> None:
        # A report that arrives during the fencing starts a time of its own.
        reported_at, self._reported_at = self._reported_at, None
        # Every broker gets these reports, and any of them may become the controller at the next
        # election.
        is_controller = self._metadata.controller_id == self._node_id
        try:
            dead, silent = await self._lost() if is_controller else ({}, {})
            due, next_s = self.lease_grants.divide(dead | silent)
            if next_s is not None:
                self._look_again(next_s)
            await self._fence_now(due, reported_at, silent)
        finally:
            self._silence.deafness.settle()

    def _retry_later(self) -> None:
        if not self._stopped:
            self._look_again(self._retry_s)
            self._retry_s = min(2 * self._retry_s, _RETRY_S_MAX)

    def _look_again(self, pause_s: float) -> None:
        """Look at all brokers after a pause, or earlier if that is due for another one."""
        at_s = self._clock.monotonic() + pause_s
        if self._retry is not None and self._retry_at_s <= at_s:
            return
        self._cancel_retry()
        self._retry = self._tasks.call_later(pause_s, self._on_brokers)
        self._retry_at_s = at_s

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def _fence_now(
        self, due: dict[int, int], reported_at: float | None, silent: dict[int, int]
    ) -> None:
        dead = {broker: epoch for broker, epoch in due.items() if broker not in silent}
        await self._fence(dead, "is dead")
        unreached = {broker: epoch for broker, epoch in due.items() if broker in silent}
        await self._fence(unreached, "does not answer")
        if dead and reported_at is not None:
            self.elections.note(self._clock.monotonic() - reported_at)

    async def _lost(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the dead brokers with their epochs, and the silent live brokers.

        A process registers in the store before it does in the image. So a process in the image
        first and not in the store after that is dead.
        """
        brokers = [
            broker for broker in self._metadata.image.brokers.values() if not broker.is_fenced
        ]
        live = await self._metadata.live_brokers()
        silent = await self._silent(live)
        dead_epochs, silent_epochs = {}, {}
        for broker in brokers:
            # By incarnation, not by id: a broker that started again at once is dead as well,
            # because its new process has not caught up.
            if live.get(broker.broker_id) != broker.incarnation_id:
                dead_epochs[broker.broker_id] = broker.epoch
            elif broker.broker_id in silent:
                silent_epochs[broker.broker_id] = broker.epoch
        return dead_epochs, silent_epochs

    async def _silent(self, live: Mapping[int, bytes]) -> frozenset[int]:
        """Return the brokers that this one has not seen for a session, or that run and are cut off,
        and deaf brokers.

        The set is empty while this broker may not decide by its own view.
        """
        running = await self._running(live)
        now_s, term = self._clock.monotonic(), self._metadata.term
        if term != self._term:
            self._term, self._since_s = term, now_s
            self._silence.deafness.forget_denials()
        # After the store has answered: a broker may have called meanwhile.
        silent = self._silence.unseen() | self._silence.cut_off().intersection(running)
        deaf = self._silence.deafness.deaf()
        if not (silent or deaf) or not self._silence.reaches_half(live):
            return frozenset()
        wait_s = self._since_s + self._settled_s - now_s
        if silent and wait_s > 0.0:
            self._look_again(wait_s)
            silent = frozenset()
        self._silence.deafness.give_up(silent | deaf)
        return silent | deaf

    async def _running(self, live: Mapping[int, bytes]) -> Collection[int]:
        """Return the brokers that run, if a live broker is cut off or paused."""
        doubtful = (self._silence.cut_off() - self._silence.unseen()).intersection(live)
        if not doubtful:
            return ()
        running = await self._metadata.beating_brokers(_RUNS * self._session_s)
        if doubtful.difference(running):
            self._look_again(self._session_s / _LOOKS_PER_SESSION)
        return running

    async def _fence(self, brokers: dict[int, int], reason: str) -> None:
        if not brokers:
            return
        for broker_id in await self._metadata.submit(lambda image: plan_fence(image, brokers)):
            logger.info(
                "Fenced broker %d, which %s",
                broker_id,
                reason,
                extra=event("broker_fenced", broker=broker_id, reason=reason),
            )


def _log_failure(error: KafkaError | MetadataError) -> None:
    """Log that dead brokers are not fenced, unless another controller will do that."""
    if isinstance(error, KafkaError) and error.code is ErrorCode.NOT_CONTROLLER:
        return
    logger.warning("Dead brokers are not fenced yet: %s", error, extra=event("fencing_failed"))


def _registered(
    image: MetadataImage, request: BrokerRegistrationRequest, config: BrokerConfig, seen: int
) -> Plan[int]:
    """Return the plan to register a process that was alive when its id had the epoch `seen`."""
    if request.cluster_id != image.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id} is of cluster {request.cluster_id}, not "
            f"{image.cluster_id}",
        )
    features = tuple(
        SupportedLevels(feature.name, feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    )
    check_supported(image, request.broker_id, features)
    broker = image.brokers.get(request.broker_id)
    is_repeated = broker is not None and broker.incarnation_id == request.incarnation_id
    if last_epoch(image, request.broker_id) != seen and not is_repeated:
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process of broker {request.broker_id} has registered meanwhile",
        )
    endpoints = (
        Endpoint(listener.name, listener.host, listener.port) for listener in request.listeners
    )
    joined = plan_join(
        image,
        request.broker_id,
        request.incarnation_id,
        endpoints=tuple(endpoints),
        rack=request.rack,
        directory_id=request.log_dirs[0] if len(request.log_dirs) == 1 else NO_DIRECTORY,
        previous_epoch=request.previous_broker_epoch,
        features=features,
        kept_topics=request.kept_topics,
        kept_topics_epoch=request.kept_topics_epoch,
    )
    # The settings come first, in the same entry: the registration may elect leaders, and by these
    # settings.
    records = [*plan_election_settings(image, config), *joined.records]
    # With that broker the records of assigned epochs may be lost, and no other replica shows which.
    # So no epoch of these producer ids is assigned again.
    if joined.result.has_lost and _is_last_with_transactions(image, request.broker_id):
        records += plan_forget_epochs(image).records
    return Plan(tuple(records), joined.result.epoch)


def _lost(image: MetadataImage, broker_id: int, epoch: int) -> Plan[None]:
    records = plan_lose(image, broker_id, epoch).records
    if _is_last_with_transactions(image, broker_id):
        records += plan_forget_epochs(image).records
    return Plan(records, None)


def _failed(
    image: MetadataImage, broker_id: int, epoch: int, failed: Mapping[tuple[bytes, int], Failure]
) -> Plan[None]:
    records = plan_failed_replicas(image, broker_id, epoch, failed).records
    topic = image.topic(TRANSACTION_TOPIC)
    if (
        topic is not None
        and any(topic_id == topic.topic_id for topic_id, _ in failed)
        and _is_last_with_transactions(image, broker_id)
    ):
        records += plan_forget_epochs(image).records
    return Plan(records, None)


def _is_last_with_transactions(image: MetadataImage, broker_id: int) -> bool:
    """Return whether no other broker has all of the state of some transactions."""
    topic = image.topic(TRANSACTION_TOPIC)
    partitions = topic.partitions.values() if topic is not None else ()
    return any({*partition.isr, *partition.elr} == {broker_id} for partition in partitions)


def _proposals(request: AlterPartitionRequest) -> list[ProposedIsr]:
    return [
        ProposedIsr(
            topic.topic_id,
            partition.partition_index,
            partition.leader_epoch,
            partition.partition_epoch,
            _members(partition),
            partition.new_leader,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]


def _members(data: PartitionData) -> tuple[tuple[int, int], ...]:
    """Return node ids and broker epochs, which version 2 does not have."""
    with_epochs = ((member.broker_id, member.broker_epoch) for member in data.new_isr_with_epochs)
    return (*with_epochs, *((node_id, -1) for node_id in data.new_isr))


def _altered(results: list[AlteredIsr]) -> list[AlteredTopic]:
    return [
        AlteredTopic(topic_id=topic_id, partitions=[_altered_partition(result) for result in group])
        for topic_id, group in groupby(results, lambda result: result.topic_id)
    ]


def _altered_partition(result: AlteredIsr) -> AlteredPartition:
    response = AlteredPartition(partition_index=result.partition, error_code=result.error)
    if result.state is not None:
        response.leader_id = result.state.leader
        response.leader_epoch = result.state.leader_epoch
        response.isr = list(result.state.isr)
        response.partition_epoch = result.state.partition_epoch
    return response
