"""Keeps the ISRs of the partitions that this broker leads, with the controller's consent.

A proposal counts in the high watermark before it is sent, and until its fate is known (KIP-497):
the controller may elect any member of an ISR that it has accepted. Two things decide it: metadata
newer than the state that it was made for, and INELIGIBLE_REPLICA as the response to every request
that has proposed it. Other refusals say that the image of this broker, or of a former controller,
is old. A request without a response may still arrive and be accepted, after any later one was
refused. So each request is one attempt: this module alone repeats it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container
from functools import partial
from itertools import groupby
from typing import Any

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import FailingTask, event
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.brokers import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from lakelog.replica.desired_isr import StallGuard, is_quiet, wanted_isr
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.runtime.api import Clock, Tasks, Timer
from lakelog.server.controller.relays import may_be_done
from lakelog.server.replication.hand_overs import HandOvers

logger = logging.getLogger(__name__)

_PERIOD_MAX_S = 0.5
_MUTE_MAX_MS = 1200
"""A follower sends a fetch every `replica.fetch.wait.max.ms`, 0.5 s, also without news."""
_PROPOSALS_MAX = 1000
"""In one request, so that the change fits one entry of the metadata log."""
_ACCEPTED = (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)


class IsrManager:
    """The ISRs of led partitions, from `start` to `stop`.

    Args:
        image: returns the metadata in force.
        alter: sends the request to the controller once, and follows the change.
        lag_max_ms: `replica.lag.time.max.ms`.
        prefers_first: `auto.leader.rebalance.enable`: leaders hand over to preferred replicas.
        silent: returns the brokers that have not called this one for a session. They leave the
            ISRs when they are behind for `silent_lag_max_ms`.
    """

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        alter: Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]],
        lag_max_ms: int,
        clock: Clock,
        tasks: Tasks,
        *,
        prefers_first: bool = True,
        silent: Callable[[], Container[int]] = frozenset,
        silent_lag_max_ms: int = 0,
    ) -> None:
        self._node_id = node_id
        self._hand_overs = HandOvers(node_id, clock, tasks, is_enabled=prefers_first)
        self._image = image
        self._alter = alter
        self._silent = silent
        self._silent_lag_max_ms = silent_lag_max_ms
        self._clock = clock
        self._tasks = tasks
        self._period_s = min(_PERIOD_MAX_S, lag_max_ms / 4000)
        self._guard = StallGuard(max(int(self._period_s * 1000), 1), lag_max_ms)
        self._mute_guard = StallGuard(
            max(int(self._period_s * 1000), 1), min(_MUTE_MAX_MS, lag_max_ms)
        )
        self._led: dict[tuple[bytes, int], Partition] = {}
        self._due: dict[Partition, None] = {}
        """Partitions that may need another ISR. Idle ones do not."""
        self._known_brokers: object = None
        """The registered brokers of the last check."""
        self._open: dict[Partition, PartitionImage] = {}
        """The states for which an ISR was proposed, without a known fate."""
        self._unsettled: set[Partition] = set()
        """Partitions in `_open` with a proposal that is accepted, or may still be: only newer
        metadata decides it."""
        self._handing: list[Partition] = []
        """Proposed partitions whose preferred replicas may take over."""
        self._timer: Timer | None = None
        self._asking: Any = None
        self._checks = FailingTask(logger, "the check of ISRs")
        self._changes = FailingTask(logger, "the change of ISRs")

    def note_role(self, partition: Partition) -> None:
        """Follow a change of the partition's role; a retired partition has none."""
        self._hand_overs.forget(partition)
        if partition.serves and partition.role.followers:
            self._led[partition.key] = partition
            self._due[partition] = None
        else:
            self._led.pop(partition.key, None)
            self._due.pop(partition, None)
            self._open.pop(partition, None)
            self._unsettled.discard(partition)

    def start(self) -> None:
        """Check all ISRs regularly from now on."""
        self._timer = self._tasks.call_later(self._period_s, self._period)

    def stop(self) -> None:
        """Propose nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def _period(self) -> None:
        with self._checks:  # without a next turn no ISR would change any more
            self._check()
        self.start()

    def _check(self) -> None:
        now_ms = self._clock.monotonic_ms()
        lag_ms, mute_ms = self._guard.lag_ms(now_ms), self._mute_guard.lag_ms(now_ms)
        # One request at a time. With two under way, the fate of the first would be unknown when the
        # second is planned on the same partition epoch.
        if self._asking is None:
            self._close_decided()
            proposals = self._proposals(now_ms, lag_ms, mute_ms)
            # In this loop iteration: later ones may commit records that a new member does not have.
            states = self._propose(proposals)
            if states:
                self._hand_overs.begin(
                    [partition for partition in self._handing if partition in states]
                )
                asking = self._ask(states, proposals)
                self._asking = self._tasks.spawn(asking, name="alter partitions")

    def _close_decided(self) -> None:
        """Count only the committed ISR of partitions whose state has changed since a proposal.

        The controller has accepted the proposal, or will refuse it.
        """
        assert self._unsettled <= self._open.keys()
        image = self._image()
        for partition, proposed_for in list(self._open.items()):
            state = image.partition(partition.topic_id, partition.index)
            # The image decides, not the response: a lost response leaves it unknown whether the
            # controller has changed the ISR (KAFKA-14154).
            assert partition.role.is_leader, "a change of the role ends the proposal"
            if state is not None and state.leader_epoch != proposed_for.leader_epoch:
                del self._open[partition]  # `assume` has ended the proposal
                self._unsettled.discard(partition)
            elif (
                state is not None
                and state.partition_epoch > proposed_for.partition_epoch
                # Before that only the proposal may count a member that this state has.
                and self._follows(partition, state)
            ):
                self._close(partition)

    def _follows(self, partition: Partition, state: PartitionImage) -> bool:
        """Return whether the partition has the role of this state: the image may be ahead of it."""
        return Role.in_image(state, self._node_id) == partition.role

    def _close(self, partition: Partition) -> None:
        del self._open[partition]
        self._unsettled.discard(partition)
        partition.propose_isr(())

    def _proposals(
        self, now_ms: int, lag_ms: int, mute_ms: int
    ) -> dict[Partition, tuple[int, ...]]:
        """Return the first partitions that need another ISR, or the fate of a proposal.

        It costs as much as partitions are due, not as many as are led.
        """
        brokers = self._image().brokers
        if brokers is not self._known_brokers:
            self._known_brokers = brokers
            self._due.update(dict.fromkeys(self._led.values()))
        # A fenced broker is rejected by the controller (KIP-841). Without this, its followers that
        # still fetch would be proposed in every period.
        # So is a broker that cannot write.
        epochs = {
            broker.broker_id: broker.epoch
            for broker in brokers.values()
            if not broker.is_fenced and not broker.is_read_only
        }
        silent = self._silent()
        proposals: dict[Partition, tuple[int, ...]] = {}
        self._handing = []
        for partition in list(self._due | self._open):
            isr = partition.role.isr
            if partition.serves:
                isr = wanted_isr(
                    partition,
                    self._node_id,
                    epochs,
                    now_ms,
                    lag_ms,
                    silent,
                    self._silent_lag_max_ms,
                    mute_ms,
                )
            is_handed = partition.serves and self._hand_overs.is_due(partition, isr, epochs, now_ms)
            if is_handed:
                self._handing.append(partition)
            if is_handed or isr != partition.role.isr or partition in self._open:
                proposals[partition] = isr
                if len(proposals) == _PROPOSALS_MAX:
                    break
            elif is_quiet(partition, epochs) and not self._hand_overs.awaits(
                partition, isr, epochs
            ):
                self._rest(partition)
        return proposals

    def _rest(self, partition: Partition) -> None:
        """Check the partition again when a follower stirs, or when its role or a broker changes."""
        del self._due[partition]
        wake = partial(self._wake, partition)
        for node_id in partition.role.followers:
            follower = partition.followers.get(node_id)
            if follower is not None:
                follower.on_stir = wake

    def _wake(self, partition: Partition) -> None:
        if self._led.get(partition.key) is partition:  # its topic may have been deleted
            self._due[partition] = None

    def _propose(
        self, proposals: dict[Partition, tuple[int, ...]]
    ) -> dict[Partition, PartitionImage]:
        """Count the wanted members as in sync; return the states that they are proposed for."""
        image = self._image()
        states = {
            partition: state
            for partition in proposals
            if (state := image.partition(partition.topic_id, partition.index)) is not None
            # Otherwise this broker may not lead any more, and its view of the followers is
            # worthless. The role that follows would also end the proposal for its own state.
            and self._follows(partition, state)
        }
        for partition in states:
            assert self._node_id in proposals[partition], "a leader is in its own ISR"
            # Before the request leaves: once the controller has it, it may elect any proposed
            # member, and such a member must have every record that is committed meanwhile
            # (KIP-497).
            partition.propose_isr(proposals[partition])
        self._open.update(states)
        return states

    async def _ask(
        self, states: dict[Partition, PartitionImage], proposals: dict[Partition, tuple[int, ...]]
    ) -> None:
        try:
            heirs = await self._hand_overs.heirs()
            request = AlterPartitionRequest(
                broker_id=self._node_id,
                # A process before this one could not be distinguished by its node id alone
                # (KIP-903).
                broker_epoch=self._image().broker_epoch(self._node_id),
                topics=_topics(states, proposals, heirs),
            )
            response = await self._alter(request)
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code))
            self._conclude(response, states, heirs)
        except (KafkaError, MetadataError) as error:
            if isinstance(error, MetadataError) or may_be_done(error):
                self._unsettled.update(self._open.keys() & states.keys())
            logger.warning("ISRs are not changed: %s", error, extra=event("isr_change_failed"))
        except Exception as bug:  # noqa: BLE001 - the controller may have carried it out
            self._unsettled.update(self._open.keys() & states.keys())
            self._changes.failed(bug)
        else:
            self._changes.succeeded()
        finally:
            self._hand_overs.end()
            self._asking = None

    def _conclude(
        self,
        response: AlterPartitionResponse,
        states: dict[Partition, PartitionImage],
        heirs: dict[Partition, int],
    ) -> None:
        results = {
            (topic.topic_id, result.partition_index): result
            for topic in response.topics
            for result in topic.partitions
        }
        for partition, state in states.items():
            result = results.get(partition.key)
            if result is not None and result.error_code in _ACCEPTED:
                _log_change(partition, state, result)
                if partition in heirs and result.error_code == ErrorCode.NONE:
                    self._hand_overs.note_kept(partition)
            if self._open.get(partition) is state:
                self._note_answer(partition, None if result is None else result.error_code)

    def _note_answer(self, partition: Partition, code: int | None) -> None:
        """Note the code of the partition's latest proposal; None without one."""
        if code == ErrorCode.NOT_CONTROLLER:
            return  # it was not considered, and is made again
        if code != ErrorCode.INELIGIBLE_REPLICA:
            self._unsettled.add(partition)
        elif partition not in self._unsettled:
            # No proposal for this state is under way, and each one was refused for good.
            self._close(partition)


def _topics(
    states: dict[Partition, PartitionImage],
    proposals: dict[Partition, tuple[int, ...]],
    heirs: dict[Partition, int],
) -> list[TopicData]:
    ordered = sorted(states, key=lambda partition: partition.key)
    return [
        TopicData(
            topic_id=topic_id,
            partitions=[
                PartitionData(
                    partition_index=partition.index,
                    leader_epoch=states[partition].leader_epoch,
                    partition_epoch=states[partition].partition_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=member, broker_epoch=_epoch(partition, member))
                        for member in proposals[partition]
                    ],
                    new_leader=heirs.get(partition, -1),
                )
                for partition in partitions
            ],
        )
        for topic_id, partitions in groupby(ordered, lambda partition: partition.topic_id)
    ]


def _epoch(partition: Partition, node_id: int) -> int:
    """Return the registration with which a follower fetched; -1 for the leader and before that."""
    follower = partition.followers.get(node_id)
    # The controller compares this with the follower's registration. A follower that started again
    # since its last fetch may have lost records, and is rejected (KIP-903).
    return -1 if follower is None else follower.broker_epoch


def _log_change(partition: Partition, old: PartitionImage, new: AlteredPartition) -> None:
    logger.info(
        "ISR of %s-%d: %s, before %s",
        partition.topic,
        partition.index,
        new.isr,
        list(old.isr),
        extra=event(
            "isr_changed",
            topic=partition.topic,
            partition=partition.index,
            isr=new.isr,
            before=list(old.isr),
        ),
    )
