"""Whether the metadata image of this broker is recent enough to answer as a coordinator.

A broker that is cut off, or was stopped for a while, does not learn that another one coordinates in
its place. Its appends fail, but it would answer heartbeats and offset fetches from an old state. So
it answers only while it holds a lease, which ends before the cluster can count it as dead: half the
session timeout after a moment at which its image was complete, and before a session timeout after
its last heartbeat that the others can see, even if it still reads the metadata. It ends earlier
after the last call that the controller has answered: a broker that the controller does not reach,
and that runs, is fenced before its session ends.

The metadata store confirms the image. While the store cannot be reached, the other brokers do, if
all of them answer and know no later leader of a coordinator's partition: without its store, a
cluster elects nothing, and its groups go on. If only this broker cannot reach the store, the others
may elect soon, so their grants count for a shorter time, in which they do not fence this broker
(`controller.lease_grants`). It ends at once when one of them knows a later leader.
The clock runs during a stop of the process, and so does the lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import Any

from lakelog.base.errors import KafkaError
from lakelog.base.events import FailingTask
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from lakelog.runtime.api import Clock, Tasks, pause
from lakelog.server.controller.lease_grants import GRANT_PER_SESSION
from lakelog.server.inter_broker.peer import Peer
from lakelog.server.inter_broker.silence import LEASE_PERCENT

_TOPICS = (GROUP_TOPIC, TRANSACTION_TOPIC)
_PATIENCE_S = 1.0


class Agreement(Enum):
    """The answers of the other brokers together."""

    FULL = auto()
    """All that may lead have granted a lease, and know the same controller and no later leader."""
    OPEN = auto()
    DENIED = auto()
    """One of them knows a later leader of a partition that this broker leads."""


class LaterLeaders:
    """The leaders that other brokers know.

    They must also know the same controller. A new one, whose election this broker has missed, does
    not get its heartbeats, and may soon elect another coordinator although all of them still agree.
    And they grant a lease: they do not fence this broker while their answers count
    (`controller.lease_grants`). A broker of an older version grants none, so this one gets no full
    agreement.

    Args:
        image: returns the metadata image of this broker.
        controller_id: returns the controller that this broker knows.
        peer: returns the connection to a broker, None without an address.
    """

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        controller_id: Callable[[], int],
        peer: Callable[[int], Peer | None],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._controller_id = controller_id
        self._peer = peer

    async def ask(self) -> Agreement:
        """Ask all other brokers that may lead, at the same time."""
        image = self._image()
        others = set(image.brokers).difference(image.fenced) | self._eligible(image)
        peers = [self._peer(node_id) for node_id in sorted(others - {self._node_id})]
        answers = {
            *await asyncio.gather(*(self._answer(peer) for peer in peers if peer is not None))
        }
        if None in peers:
            answers.add(Agreement.OPEN)
        for answer in (Agreement.DENIED, Agreement.OPEN):
            if answer in answers:
                return answer
        return Agreement.FULL

    def _eligible(self, image: MetadataImage) -> set[int]:
        """Return the brokers that may be elected in place of this one.

        A fenced broker is among them if it is an eligible replica. It may have returned since.
        """
        topics = [topic for name in _TOPICS if (topic := image.topic(name)) is not None]
        return {
            node_id
            for topic in topics
            for partition in topic.partitions.values()
            if partition.leader == self._node_id
            for node_id in (*partition.isr, *partition.elr)
        }

    async def _answer(self, peer: Peer) -> Agreement:
        request = BrokerHeartbeatRequest(broker_id=self._node_id, want_lease=True)
        topics = [MetadataRequestTopic(name=name) for name in _TOPICS]
        question = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        try:
            grant = await peer.request(request, timeout_s=_PATIENCE_S)
            # Only after the grant the peer elects no leader that this answer could miss.
            response = await peer.request(question, timeout_s=_PATIENCE_S)
        except KafkaError:
            return Agreement.OPEN
        assert isinstance(grant, BrokerHeartbeatResponse)
        assert isinstance(response, MetadataResponse)
        image = self._image()
        is_same = grant.is_lease_granted and response.controller_id == self._controller_id()
        for topic in response.topics:
            for partition in topic.partitions:
                own = image.partition(topic.name or "", partition.partition_index)
                if own is None:
                    is_same = False
                elif partition.leader_epoch > own.leader_epoch:
                    if own.leader == self._node_id:
                        return Agreement.DENIED
                    is_same = False
        return Agreement.FULL if is_same else Agreement.OPEN


logger = logging.getLogger(__name__)

_LEASES_PER_SESSION = 2
_UNSEEN_MAX = 0.9
"""Part of a session after the last visible heartbeat; the clocks of brokers drift."""
_CONTACT_MAX = LEASE_PERCENT / 100
"""Part of a session after the last call that the controller has answered."""
_RENEWALS_PER_LEASE = 3
_PAUSE_MIN = 0.3
"""Part of the time between two questions that is left after a late answer."""
_LATE = 0.6
"""Part of a lease that is left when the store has missed a renewal; the others need some of it."""


class Lease:
    """The lease of this broker, from `start` to `stop`; it holds before, as for a broker alone.

    Args:
        catch_up: returns once the image has every entry that was committed before the call. Raises
            `KafkaError` or `MetadataError`.
        heartbeat_s: returns when the last heartbeat was sent that other brokers can see.
        contact_s: returns when the last call began that the controller has answered.
        ask_peers: asks all other brokers for later leaders.
        session_timeout_s: after which the cluster counts a silent broker as dead.
    """

    def __init__(
        self,
        catch_up: Callable[[], Awaitable[None]],
        heartbeat_s: Callable[[], float],
        contact_s: Callable[[], float],
        ask_peers: Callable[[], Awaitable[Agreement]],
        session_timeout_s: float,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._catch_up = catch_up
        self._heartbeat_s = heartbeat_s
        self._contact_s = contact_s
        self._ask_peers = ask_peers
        self._session_s = session_timeout_s
        self._lease_s = session_timeout_s / _LEASES_PER_SESSION
        self._clock = clock
        self._tasks = tasks
        self._until = float("inf")
        self._denied_s = float("-inf")
        """When another broker knew a later leader; older questions count no more."""
        self._running: Sequence[Any] = ()

    def holds(self) -> bool:
        """Return whether no other broker can have taken the place of this one."""
        return self._clock.monotonic() < self._until

    def start(self) -> None:
        """Renew the lease from now on; the image is complete."""
        if self._until == float("inf"):  # the controller may have denied it already
            self._until = self._clock.monotonic() + self._lease_s
        self._running = [
            self._tasks.spawn(self._renew(limit), name=f"lease by {by}")
            for by, limit in (("store", self._by_store), ("peers", self._by_peers))
        ]

    def stop(self) -> None:
        """Do not renew it any more."""
        for task in self._running:
            task.cancel()
        self._running = ()

    def deny(self) -> None:
        """End it: the controller may replace this broker soon, although it answers its calls."""
        self._denied_s = self._until = self._clock.monotonic()

    async def _renew(self, limit: Callable[[float], Awaitable[float]]) -> None:
        """Extend the lease to `limit`, which gets the time of the question."""
        task = FailingTask(logger, "the renewal of the lease")
        every_s, asked_s = self._lease_s / _RENEWALS_PER_LEASE, self._clock.monotonic()
        while True:
            due_s = asked_s + every_s - self._clock.monotonic()
            await pause(self._tasks, max(every_s * _PAUSE_MIN, due_s))
            asked_s = self._clock.monotonic()
            with task:  # without a lease no coordinator answers again
                until = await limit(asked_s)
                if asked_s > self._denied_s:
                    self._until = max(self._until, until)

    async def _by_store(self, asked_s: float) -> float:
        try:
            await self._catch_up()
        except (KafkaError, MetadataError):
            return asked_s
        # Until then no broker counts this one as dead.
        counted = self._heartbeat_s() + _UNSEEN_MAX * self._session_s
        seen = self._contact_s() + _CONTACT_MAX * self._session_s
        return min(asked_s + self._lease_s, counted, seen)

    async def _by_peers(self, asked_s: float) -> float:
        """Ask the others only when the store is late."""
        if self._until - asked_s >= _LATE * self._lease_s:
            return asked_s
        answer = await self._ask_peers()
        if answer is Agreement.DENIED:
            self.deny()
        agreed = answer is Agreement.FULL
        return asked_s + self._session_s * GRANT_PER_SESSION if agreed else asked_s
