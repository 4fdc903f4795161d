"""How this broker joins a cluster of several brokers, and how it leaves it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import FailingTask, event
from lakelog.metadata.controller.brokers import check_supported, is_noted
from lakelog.metadata.controller.leadership import plan_failed_replicas
from lakelog.metadata.errors import MetadataError, RegistrationLost
from lakelog.metadata.failover import AT_START, Failure
from lakelog.metadata.features import SUPPORTED
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.protocol import brokers as messages
from lakelog.runtime.api import Tasks
from lakelog.server.controller.controller import Controller
from lakelog.server.controller.relays import ControllerLink, may_pass
from lakelog.wire.schema import Message

logger = logging.getLogger(__name__)

_ROUND_S = 5.0
"""How long a controller that does not answer is asked before it is replaced unless it serves."""
_ROUNDS_PER_LINE = 6
_LEAVE_PATIENCE_S = 5.0
_NAMED_MAX = 10
_UNCERTAIN = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
)
"""Codes after which a start continues. The controller does not find this process in the store, or a
former one was registered meanwhile: reading the store registers this process there again, or shows
that another one has its id."""
_PAUSES_MAX = 50
"""Pauses of the link between two attempts after many failures: 5 seconds."""


class KeptTopics(NamedTuple):
    """The topics for which a data folder is complete, although the power may have failed."""

    broker_epoch: int = -1
    """The epoch of the process up to which the folder is complete for them."""
    topic_ids: tuple[bytes, ...] = ()


class Membership:
    """The registration of this broker, and whether it is fenced or read-only.

    Args:
        controller: carries out the requests while this broker is the controller.
    """

    def __init__(
        self,
        node_id: int,
        metadata: MetadataLog,
        link: ControllerLink,
        controller: Controller,
        tasks: Tasks,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._link = link
        self._controller = controller
        self._tasks = tasks
        self._reporting: Any = None
        self._task = FailingTask(logger, "the report to the controller")
        self._serves = False
        self._is_read_only = False
        self._failed: dict[tuple[bytes, int], Failure] = {}
        """Failures of replicas by topic id and partition."""
        self._unchanged: tuple[int, dict[tuple[bytes, int], Failure]] = (-1, {})
        """The end of the last image that a report of these failures did not change."""
        self._on_unregistered: Callable[[RegistrationLost], object] = lambda error: None

    @property
    def epoch(self) -> int:
        """The epoch of the registration, -1 before it."""
        return self._metadata.image.broker_epoch(self._node_id)

    @property
    def process(self) -> bytes | None:
        """The incarnation id of the last registered process, None before the first."""
        broker = self._metadata.image.brokers.get(self._node_id)
        return None if broker is None else broker.incarnation_id

    async def register(
        self,
        endpoints: tuple[Endpoint, ...],
        rack: str | None,
        *,
        directory_id: bytes,
        previous_epoch: int,
        kept: KeptTopics,
    ) -> None:
        """Register this process, and wait until the image shows it.

        directory_id: of the data folder.
        previous_epoch: the broker epoch up to which the folder is complete, or -1 (KIP-966).
        kept: the topics for which it is complete after a power failure.

        Raises `KafkaError`.
        """
        # The controller checks it, too; only this process can say which levels it lacks.
        check_supported(self._metadata.image, self._node_id, SUPPORTED)
        request = messages.BrokerRegistrationRequest(
            broker_id=self._node_id,
            cluster_id=self._metadata.image.cluster_id or "",
            incarnation_id=self._metadata.incarnation_id,
            listeners=[
                messages.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                for endpoint in endpoints
            ],
            features=[
                messages.Feature(
                    name=feature.name,
                    min_supported_version=feature.lowest,
                    max_supported_version=feature.highest,
                )
                for feature in SUPPORTED
            ],
            rack=rack,
            log_dirs=[directory_id],
            previous_broker_epoch=previous_epoch,
            kept_topics_epoch=kept.broker_epoch,
            kept_topics=list(kept.topic_ids),
        )
        response: messages.BrokerRegistrationResponse = await self._await_controller(
            request, lambda: self._controller.register(request)
        )
        _check(response.error_code, "the controller refused the registration")
        while self.epoch < response.broker_epoch:
            await self._link.pause()
            await self._metadata.refresh()
        # The epochs of a broker only rise, so a higher one is of a later registration.
        if self.epoch > response.broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, "another process has registered with this node id"
            )

    async def reserve_producer_ids(self) -> range:
        """Return a block of producer ids for this broker alone. Raises `KafkaError`."""
        request = messages.AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=self.epoch
        )
        # An error of this broker's own log says why, unlike the code in a response.
        response: messages.AllocateProducerIdsResponse = await self._link.carry_out(
            request,
            lambda: self._controller.reserve_producer_ids(request),
            is_repeatable=True,  # a second block stays unused
            is_own=True,
        )
        _check(response.error_code, "the controller gave no producer ids")
        first = response.producer_id_start
        return range(first, first + response.producer_id_len)

    def watch_unregistered(self, callback: Callable[[RegistrationLost], object]) -> None:
        """Call `callback` once if this broker is unregistered while it serves."""
        self._on_unregistered = callback

    def serve(self) -> None:
        """Stay unfenced from now on, and stand for election."""
        self._serves = True
        self._metadata.serve()
        self.follow(self._metadata.image)

    def check(self, image: MetadataImage) -> None:
        """Raise `RegistrationLost` if another process has registered with this broker's id.

        Epoch and leaderships then belong to the other process, and this one must not act on them.
        """
        own = image.brokers.get(self._node_id)
        if own is not None and own.incarnation_id != self._metadata.incarnation_id:
            raise RegistrationLost(
                f"another process has registered as broker {self._node_id} while this one ran; "
                "start each broker with a --node-id of its own, and a replaced broker not at all"
            )

    def follow(self, image: MetadataImage) -> None:
        """Send heartbeats while the image shows this broker as fenced, or a former state of it.

        Stop if it was unregistered: the operator replaces it.
        """
        own = image.brokers.get(self._node_id)
        if own is None and self._serves:
            self._serves = False
            error = RegistrationLost(
                f"broker {self._node_id} was unregistered while it ran; if it should be in the "
                "cluster, start it, and it registers again"
            )
            logger.error("%s", error, extra=event("own_registration_missing"))
            self._on_unregistered(error)
        if self._has_to_report() and self._reporting is None:
            self._reporting = self._tasks.spawn(self._report(), name="report to the controller")

    def note_failed(self, key: tuple[bytes, int], failure: Failure | None) -> None:
        """Have other replicas lead a partition whose log here is damaged or has failed.

        failure: None after the log has been replaced, and when its topic is deleted.
        """
        if failure is None and self._failed.pop(key, None) is None:
            return
        if failure is not None:
            self._failed[key] = failure
        self.follow(self._metadata.image)

    def note_folder(self, *, is_read_only: bool) -> None:
        """Have the controller know whether this broker can write to its data folder."""
        self._is_read_only = is_read_only
        self.follow(self._metadata.image)

    async def report_loss(
        self, directory_id: bytes, partitions: list[tuple[str, bytes, int]]
    ) -> None:
        """Have the controller not elect this broker for these partitions.

        partitions: of which records are missing: name and id of the topic, and the index.

        Raises `KafkaError`.
        """
        logger.error(
            "Records of %d partition%s are missing, among them %s: this broker does not lead them "
            "until it has copied them again",
            len(partitions),
            "" if len(partitions) == 1 else "s",
            ", ".join(f"{name}-{index}" for name, _, index in partitions[:_NAMED_MAX]),
            extra=event("replicas_lost", partitions=len(partitions)),
        )
        failure = Failure(AT_START)
        failed = {(topic_id, index): failure for _, topic_id, index in partitions}
        request = self._heartbeat(failed, offline=directory_id)
        response: messages.BrokerHeartbeatResponse = await self._await_controller(
            request, lambda: self._controller.heartbeat(request)
        )
        _check(response.error_code, "the controller refused the heartbeat")
        await self._metadata.refresh()

    async def leave(self) -> None:
        """Hand over the partitions that this broker leads, if the controller answers soon."""
        self._serves = False
        if self._reporting is not None:
            self._reporting.cancel()
        # Leaving is a courtesy: without it the controller fences this broker as it does after a
        # kill.
        with suppress(KafkaError, MetadataError):
            await self._beat(self._heartbeat(self._failed, want_shut_down=True), _LEAVE_PATIENCE_S)

    def _is_fenced(self) -> bool:
        own = self._metadata.image.brokers.get(self._node_id)
        return own is not None and own.is_fenced

    def _has_to_report(self) -> bool:
        image = self._metadata.image
        knows = is_noted(image, self._node_id, is_read_only=self._is_read_only)
        if not self._serves:
            return False
        return self._is_fenced() or not knows or self._is_elected_for_failed(image)

    def _is_elected_for_failed(self, image: MetadataImage) -> bool:
        """Return whether a report of the failed replicas would change the metadata."""
        if not self._failed or self.epoch < 0:
            return False
        # The controller may be of another version, which plans other elections, or none.
        if self._unchanged == (image.end, self._failed):
            return False
        return bool(plan_failed_replicas(image, self._node_id, self.epoch, self._failed).records)

    async def _report(self) -> None:
        try:
            failures = 0
            while self._has_to_report():
                if await self._try_report(is_first=not failures):
                    failures = 0
                    continue
                failures += 1
                for _ in range(min(failures, _PAUSES_MAX)):
                    await self._link.pause()
        finally:
            self._reporting = None

    async def _try_report(self, *, is_first: bool) -> bool:
        """Return whether the controller has answered; log the first failure of a series."""
        try:
            await self._metadata.refresh()
            end, failed = self._metadata.image.end, dict(self._failed)
            response = await self._beat(self._heartbeat(failed), _ROUND_S)
            _check(response.error_code, "the controller refused the heartbeat")
            if not response.is_fenced:
                await self._metadata.refresh()
                # Any change since then may be newer than the decision about the report.
                if self._metadata.image.end == end:
                    self._unchanged = end, failed
            if self._has_to_report():
                await self._link.pause()
        except (KafkaError, MetadataError) as error:
            if is_first and self._is_fenced():
                logger.warning("Still fenced: %s", error, extra=event("unfencing_failed"))
            elif is_first:
                logger.warning(
                    "The controller has no heartbeat: %s", error, extra=event("heartbeat_failed")
                )
            self._metadata.doubt()
            return False
        except Exception as bug:  # noqa: BLE001 - this broker would stay fenced
            self._task.failed(bug)
            return False
        self._task.succeeded()
        return True

    async def _await_controller(self, request: Message, here: Callable[[], Awaitable[Any]]) -> Any:
        """Return the response of the controller, however long a live one takes to serve.

        A controller that does not answer and does not serve is replaced, by this broker if no other
        one serves. The request is repeated: it names this process, which the controller looks up.
        Raises `KafkaError`.
        """
        for round_ in count():
            try:
                response = await self._link.carry_out(
                    request, here, patience_s=_ROUND_S, is_repeatable=True
                )
                if response.error_code not in _UNCERTAIN:
                    return response
                reason = ErrorCode(response.error_code).name
            except KafkaError as error:
                if not may_pass(error):
                    raise
                reason = str(error)
            if round_ % _ROUNDS_PER_LINE == 0:
                logger.warning(
                    "Waiting for the controller, broker %d: %s",
                    self._metadata.controller_id,
                    reason,
                    extra=event("controller_awaited", controller=self._metadata.controller_id),
                )
            self._metadata.doubt()
            await self._link.pause()
            await self._metadata.refresh_if_possible()

    async def _beat(
        self, request: messages.BrokerHeartbeatRequest, patience_s: float
    ) -> messages.BrokerHeartbeatResponse:
        response: messages.BrokerHeartbeatResponse = await self._link.carry_out(
            request,
            lambda: self._controller.heartbeat(request),
            patience_s=patience_s,
            is_repeatable=True,  # it is of this process, which the controller looks up
            is_own=True,
        )
        return response

    def heartbeat(self) -> messages.BrokerHeartbeatRequest | None:
        """Return a request with the present state of this broker, None unless it serves."""
        return self._heartbeat(self._failed) if self._serves else None

    def _heartbeat(
        self,
        failed: Mapping[tuple[bytes, int], Failure],
        *,
        want_shut_down: bool = False,
        offline: bytes | None = None,
    ) -> messages.BrokerHeartbeatRequest:
        return messages.BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata.image.end - 1,
            want_shut_down=want_shut_down,
            want_fence=offline is not None,
            offline_log_dirs=[] if offline is None else [offline],
            is_read_only=self._is_read_only,
            failed_replicas=[
                messages.FailedReplica(
                    topic_id=topic_id,
                    partition_index=index,
                    leader_epoch=failure.leader_epoch,
                    is_offline=failure.is_offline,
                )
                for (topic_id, index), failure in failed.items()
            ],
        )


def _check(code: int, text: str) -> None:
    if code:
        raise KafkaError(ErrorCode(code), f"{text}: {ErrorCode(code).name}")
