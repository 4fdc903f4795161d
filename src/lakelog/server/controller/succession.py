"""Replaces a controller that most brokers miss, before its session with the store ends.

While the controller is cut off or stopped, no ISR can shrink, and leaders wait for replicas that do
not fetch. A broker that has got no answer from the controller for three tenths of a session asks
the others whether the controller answers them. If more than half of the live brokers miss it, this
one included, it stands for election against the term: in the same situation the controller would
resign (`Silence.reaches_half`). The broker whose silence began last finds the majority, so no
repetition of the question delays the election.

A broker that is not of this version answers that it does not miss the controller. A term is left
alone for its first session, so that brokers which stall in turn do not pass it around.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from lakelog.base.errors import KafkaError
from lakelog.base.events import FailingTask, event
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.store.api import ControllerTerm
from lakelog.protocol.brokers import BrokerHeartbeatRequest
from lakelog.protocol.cluster import DescribeClusterRequest, DescribeClusterResponse
from lakelog.runtime.api import Clock, Tasks, pause
from lakelog.server.controller.relays import Relays
from lakelog.server.inter_broker.peer import Peer
from lakelog.server.inter_broker.silence import Silence

logger = logging.getLogger(__name__)

_QUESTIONS_PER_SESSION = 6
_PATIENCE_PER_SESSION = 1 / 12
"""For the answers of all brokers, as a part of a session."""
NO_TERM = -1


class Succession:
    """The questions of one broker about the controller, until `stop`.

    Args:
        node_id: of this broker.
        peers: returns the connections for regular calls of all other brokers.
        silence: of other brokers, as this one sees it.
        session_s: `broker.session.timeout.ms`.
    """

    def __init__(
        self,
        node_id: int,
        metadata: MetadataLog,
        peers: Callable[[], Iterable[Peer]],
        silence: Silence,
        session_s: float,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._peers = peers
        self._silence = silence
        self._session_s = session_s
        self._clock = clock
        self._tasks = tasks
        self._term: ControllerTerm | None = None
        self._since_s = 0.0
        """When this broker learned of the term."""
        self._missed = NO_TERM
        self._running: Any = None
        self._stopped = False
        self._task = FailingTask(logger, "the question whether brokers miss the controller")

    @property
    def missed_epoch(self) -> int:
        """The epoch of a term whose holder most live brokers miss, by the last question; or -1."""
        return self._missed if self._misses() else NO_TERM

    def note_silence(self) -> None:
        """Ask the other brokers while the controller does not answer."""
        if self._running is None and not self._stopped and self._misses():
            self._running = self._tasks.spawn(self._run(), name="ask about the controller")

    def note_term(self) -> None:
        """Note when the term changes."""
        if self._metadata.term != self._term:
            self._term, self._since_s = self._metadata.term, self._clock.monotonic()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped = True
        if self._running is not None:
            self._running.cancel()

    def _misses(self) -> bool:
        return self._metadata.controller_id in self._silence.missed()

    async def _run(self) -> None:
        try:
            while self._misses():
                await self._try_round()
                await pause(self._tasks, self._session_s / _QUESTIONS_PER_SESSION)
        finally:
            # A later silence needs a vote of its own.
            self._running, self._missed = None, NO_TERM

    async def _try_round(self) -> None:
        try:
            await self._round()
        except MetadataError:
            self._missed = NO_TERM  # without the store there is no election, either
        except Exception as bug:  # noqa: BLE001 - the next question may succeed
            self._missed = NO_TERM
            self._task.failed(bug)
        else:
            self._task.succeeded()

    async def _round(self) -> None:
        """Ask once, and stand for election if most brokers miss the controller."""
        self.note_term()
        term, before = self._metadata.term, self._missed
        if self._clock.monotonic() < self._since_s + self._session_s:
            return
        missing = await self._ask_others(term.broker_id)
        live = await self._metadata.live_brokers()
        self._missed = NO_TERM
        count = 1 + len(missing.intersection(self._silence.counted(live)))
        is_majority = self._silence.is_majority(count, live)
        if not is_majority or term != self._metadata.term or not self._misses():
            return
        self._missed = term.epoch
        if before != term.epoch:
            logger.warning(
                "Controller %d does not answer most of the live brokers: this one stands for "
                "election",
                term.broker_id,
                extra=event("controller_missed", controller=term.broker_id, epoch=term.epoch),
            )
        self._metadata.review()

    async def _ask_others(self, controller_id: int) -> frozenset[int]:
        """Return the other brokers that miss the controller; a silent one counts as none."""
        asking = [
            self._tasks.spawn(self._ask(peer, controller_id), name=f"ask broker {peer.node_id}")
            for peer in self._peers()
            if peer.node_id != controller_id
        ]
        if not asking:
            return frozenset()
        done, late = await asyncio.wait(asking, timeout=self._session_s * _PATIENCE_PER_SESSION)
        for task in late:
            task.cancel()
        return frozenset().union(*(task.result() for task in done))

    async def _ask(self, peer: Peer, controller_id: int) -> frozenset[int]:
        """Return the broker if it misses the controller."""
        request = DescribeClusterRequest(missing=controller_id)
        try:
            response = await peer.request(request, timeout_s=self._session_s)
        except KafkaError:
            return frozenset()
        assert isinstance(response, DescribeClusterResponse)
        return frozenset({peer.node_id} if response.is_missing else ())


_BEATS_PER_SESSION = 6


class Presence:
    """The heartbeats through other brokers, until `stop`.

    The controller fences a broker that it has not seen for a session. While its answers fail to
    come, this broker sends heartbeats through others. An answer also counts for the lease of
    coordinators: the controller has seen this broker after the begin of the call
    (`Silence.contact_s`).

    Args:
        heartbeat: returns a request with the present state of this broker, None unless it serves.
            A stopping broker that asked to be unfenced would lead again.
        silence: learns which controller has answered.
        session_s: `broker.session.timeout.ms`.
    """

    def __init__(
        self,
        metadata: MetadataLog,
        relays: Relays,
        heartbeat: Callable[[], BrokerHeartbeatRequest | None],
        silence: Silence,
        session_s: float,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._metadata = metadata
        self._relays = relays
        self._heartbeat = heartbeat
        self._silence = silence
        self._period_s = session_s / _BEATS_PER_SESSION
        self._clock = clock
        self._tasks = tasks
        self._running: Any = None
        self._task = FailingTask(logger, "the heartbeat through another broker")

    def note_silence(self) -> None:
        """Send heartbeats through other brokers while the controller does not answer."""
        if self._running is None and self._relays.are_needed:
            self._running = self._tasks.spawn(self._run(), name="heartbeats through others")

    def stop(self) -> None:
        """Send none any more."""
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        was_seen = False
        try:
            while self._relays.are_needed:
                is_seen = False
                with self._task:  # a broker that ended this task would be fenced in a cut
                    is_seen = await self._beat()
                if is_seen and not was_seen:
                    was_seen = True
                    logger.warning(
                        "Controller %d does not answer; requests reach it through another broker",
                        self._metadata.controller_id,
                        extra=event("controller_relayed", controller=self._metadata.controller_id),
                    )
                await pause(self._tasks, self._period_s)
        finally:
            self._running = None

    async def _beat(self) -> bool:
        """Return whether a controller has answered."""
        called_s, request = self._clock.monotonic(), self._heartbeat()
        if request is None:
            return False
        try:
            # The regular calls ask the controller directly already.
            response = await self._relays.ask(
                self._metadata.controller_id, request, through_others=True
            )
        except KafkaError:
            return False
        if response.error_code or response.answered_by < 0:
            return False
        self._silence.note_relayed_answer(response.answered_by, called_s)
        return True
