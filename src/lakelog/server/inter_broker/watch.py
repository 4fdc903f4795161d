"""Calls every other registered broker regularly, so that operators see which cannot be reached.

A log line appears when the answer changes, not at each call, and in a bounded number.

A killed process is noticed at once: its host closes its connections and refuses new ones. It is
reported as dead then, long before its session with the metadata store ends. A host that fails, or
cannot be reached, closes and refuses nothing, and only the session ends. A live process behind a
firewall that refuses connections may be reported by mistake; it then registers again, and is
reported once for each connection that it had, so that such a mistake cannot repeat itself.

The broker also calls itself at its own advertised addresses, once after a start. A wrong advertised
address lets clients connect to the bootstrap address and then fail. The broker's host is not the
client's: an address that only clients can reach is reported without alarm, one at which another
broker answers is a mistake.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any

from lakelog.base.endpoint import Endpoint
from lakelog.base.events import FailingTask, event
from lakelog.metadata.image import MetadataImage
from lakelog.network_client import Identity
from lakelog.protocol.cluster import DescribeClusterRequest, DescribeClusterResponse
from lakelog.runtime.api import Timer, complete, pause
from lakelog.server.authentication import Process
from lakelog.server.inter_broker.exchange import (
    DEFAULT_LIMITS,
    PeerError,
    PeerLimits,
    PeerRefusedError,
)
from lakelog.server.inter_broker.peer import Peer, Peers, PeerSeams
from lakelog.server.inter_broker.reachable_brokers import FailedBrokers, ReachableBrokers
from lakelog.server.inter_broker.silence import LEASE_PERCENT, NONE, Silence
from lakelog.server.log_limits import PeerLog

logger = logging.getLogger(__name__)

_PATIENCE_S = 30.0
_LIMITS = PeerLimits(connect_timeout_s=_PATIENCE_S)


async def check_advertised(
    identity: Identity, endpoints: Iterable[Endpoint], seams: PeerSeams
) -> None:
    """Log the endpoints at which the broker `identity` does not answer."""
    for endpoint in endpoints:
        peer = Peer(identity, endpoint, seams, _LIMITS)
        try:
            await peer.request(DescribeClusterRequest(), timeout_s=_PATIENCE_S)
        except PeerRefusedError:
            logger.warning(
                "Another broker answers at the advertised address %s of listener %s",
                endpoint.address,
                endpoint.name,
                extra=event("advertised_address_wrong", address=endpoint.address),
            )
        except PeerError as error:
            logger.info(
                "This host cannot reach the advertised address of listener %s: %s",
                endpoint.name,
                error.message,
                extra=event("advertised_address_unreachable", address=endpoint.address),
            )
        finally:
            peer.close()


PERIOD_S = 3.0
"""Between calls of a broker that answers, at most."""
RETRY_S = 0.5
"""After a failed call, at most; the pauses between attempts to connect come on top."""
PATIENCE_S = 3.0
_CALLS_PER_SESSION = 6
_LIMITS_PER_SESSION = 3
_TICKS_PER_SESSION = 36
"""Also of retries: within two ticks after a failed call."""


class Reach(Enum):
    """The result of the last call of a peer."""

    CONNECTED = "connected"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    """Another process has the address."""


class PeerWatch:
    """The peers of this broker, from `start` to `stop`, and whether each can be reached."""

    def __init__(
        self,
        own: Process,
        listener_name: str,
        seams: PeerSeams,
        on_death: Callable[[Process], object],
        on_silence: Callable[[], object],
        session_s: float,
    ) -> None:
        """
        own: this process.
        on_death: called with a process that has ended.
        on_silence: called when a broker has become silent, or is heard again.
        session_s: `broker.session.timeout.ms`; brokers are called several times in it.
        """
        self._period_s = min(PERIOD_S, session_s / _CALLS_PER_SESSION)
        self._patience_s = min(PATIENCE_S, session_s / _LIMITS_PER_SESSION)
        self._tick_s = session_s / _TICKS_PER_SESSION
        self._retry_s = min(RETRY_S, 2 * self._tick_s)
        self.silence = Silence(session_s, self._tick_s)
        self._on_silence = on_silence
        self._ticking = FailingTask(logger, "the count of silent brokers")
        self._on_denial: Callable[[], object] = tuple
        self._silent: tuple[frozenset[int], ...] = ()
        self._timer: Timer | None = None
        self._ticked_s = 0.0
        self.peers = Peers(own, listener_name, seams)
        limits = DEFAULT_LIMITS._replace(connect_timeout_s=self._patience_s)
        self.called = Peers(own, listener_name, seams, limits)
        """Connections for the regular calls alone: behind a request that waits for another broker,
        a call would make this one seem silent."""
        self.proposals = Peers(own, listener_name, seams, limits)
        """Connections for AlterPartition alone, to the controller and to brokers that send it on. A
        proposal without an answer ends its connection soon, which would fail other requests."""
        self.own_requests = Peers(own, listener_name, seams, limits)
        """Connections for the other requests of brokers themselves (`Relays`), of this one or sent
        on: behind a request of a client, the heartbeat of a cut-off broker would be late."""
        self.leaders = Peers(own, listener_name, seams)
        """Connections for the fetches of followers alone.

        The requests of a connection are carried out in turn, and some wait until the followers have
        a record. A fetch behind such a request would never bring it.
        """
        self._node_id = own.node_id
        self._seams = seams
        self._on_death = on_death
        self._log = PeerLog(seams.clock)
        self.failed_brokers = FailedBrokers(seams.tasks)
        self.reachable_brokers = ReachableBrokers(own.node_id, seams.tasks)
        self._reach: dict[Peer, Reach] = {}
        self._answered: set[Peer] = set()
        """Peers whose death has not been reported since their last answer."""
        self._calls: dict[Peer, Any] = {}
        """The task that calls each peer."""
        self._check: Any = None
        self._is_started = self._is_stopped = False

    def start(self, image: MetadataImage) -> None:
        """Call the other brokers from now on, and this one once at its advertised addresses."""
        self._is_started = True
        self.follow(image)
        own = image.brokers.get(self._node_id)
        if own is not None and own.endpoints and image.cluster_id is not None:
            identity = Identity(image.cluster_id, self._node_id)
            work = check_advertised(identity, own.endpoints, self._seams)
            self._check = self._seams.tasks.spawn(work, name="advertised addresses")

    def watch_denial(self, callback: Callable[[], object]) -> None:
        """Call `callback` when a controller denies this broker a lease.

        It has to end the lease at once: the next call reports the end to the controller.
        """
        self._on_denial = callback

    def follow(self, image: MetadataImage) -> None:
        """Apply the registered brokers of an image; they are called only after `start`."""
        if self._is_stopped:
            return
        for peers in (self.peers, self.leaders, self.proposals, self.own_requests):
            peers.follow(image)
        self.failed_brokers.follow(image)
        if not self._is_started:
            return
        self.called.follow(image)
        self.silence.follow(map(_callee, self.called), self._seams.clock.monotonic())
        current = set(self.called)
        for peer in [peer for peer in self._calls if peer not in current]:
            self._calls.pop(peer).cancel()
            self._reach.pop(peer, None)
            self._answered.discard(peer)
        if self._timer is None and current:  # a broker alone does nothing while it is idle
            self._ticked_s = self._seams.clock.monotonic()
            self._tick()
        for peer in self.called:
            if peer not in self._calls:
                task = self._seams.tasks.spawn(self._call(peer), name=f"call {peer.node_id}")
                self._calls[peer] = task

    def stop(self) -> None:
        """Close all connections to other brokers."""
        self._is_started, self._is_stopped = False, True
        for task in self._calls.values():
            task.cancel()
        if self._check is not None:
            self._check.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._calls.clear()
        self._reach.clear()
        self.failed_brokers.close()
        for peers in (self.peers, self.called, self.leaders, self.proposals, self.own_requests):
            peers.close()

    def counts(self) -> Mapping[Reach, int]:
        """Return the number of peers by the result of the last call, 0 included."""
        return dict.fromkeys(Reach, 0) | Counter(self._reach.values())

    def _tick(self) -> None:
        # First: without ticks no broker would be silent ever again.
        self._timer = self._seams.tasks.call_later(self._tick_s, self._tick)
        with self._ticking:
            self._count()

    def _count(self) -> None:
        now_s = self._seams.clock.monotonic()
        elapsed_s, self._ticked_s = now_s - self._ticked_s, now_s
        self.silence.tick(elapsed_s)
        silence = self.silence
        silent = (
            silence.unreached(),
            silence.unanswering(),
            silence.missed(),
            silence.unheard(),
            silence.unseen(),
            silence.cut_off(),
            silence.deafness.deaf(),
        )
        if silent != self._silent:
            self._on_silence()
            self._silent = silent

    async def _call(self, peer: Peer) -> None:
        """Runs until cancelled."""
        task = FailingTask(logger, f"the call of broker {peer.node_id}")
        while True:
            has_answered = False
            with task:  # an uncalled broker would pass for a silent one
                has_answered = await self._call_once(peer)
            if has_answered:
                await self._rest(peer)
            else:
                await pause(self._seams.tasks, self._retry_s)

    async def _call_once(self, peer: Peer) -> bool:
        """Return whether the peer has answered."""
        error: PeerError | None = None
        called_s = self._seams.clock.monotonic()
        try:
            response = await peer.request(self._regular_call(peer), timeout_s=self._patience_s)
        except PeerError as failure:
            error, response = failure, None
        self._note(peer, error)
        self._note_contact(peer, is_alive=error is None)
        if peer in self._answered and peer.is_absent:
            self._answered.discard(peer)
            self._on_death(_callee(peer))
        if error is None:
            self._answered.add(peer)
            self._note_answer(peer, called_s, response)
            self.failed_brokers.resolved(peer.node_id)
        return error is None

    def _regular_call(self, peer: Peer) -> DescribeClusterRequest:
        return DescribeClusterRequest(
            missed_brokers=sorted(self.silence.unanswered()),
            ended_lease=self.silence.denial_by(peer.node_id),
            lease_percent=LEASE_PERCENT,
        )

    def _note_answer(self, peer: Peer, called_s: float, response: Any) -> None:
        assert isinstance(response, DescribeClusterResponse)
        if response.denied_lease == NONE:
            self.silence.note_answer(_callee(peer), called_s)
            return
        now_s = self._seams.clock.monotonic()
        self.silence.note_denial(_callee(peer), response.denied_lease, now_s)
        self._on_denial()

    async def _rest(self, peer: Peer) -> None:
        """Wait until the next call, or the end of the connection, is due."""
        over = self._seams.tasks.future()
        peer.on_lost = partial(self._on_lost, peer, over)
        await pause(self._seams.tasks, self._period_s, over)

    def _note_contact(self, peer: Peer, *, is_alive: bool) -> None:
        note = self.reachable_brokers.note if is_alive else self.reachable_brokers.note_called
        note(_callee(peer))

    def _on_lost(self, peer: Peer, over: Any) -> None:
        self.failed_brokers.add(peer.node_id)
        complete(over)

    def _note(self, peer: Peer, error: PeerError | None) -> None:
        reach = _reach(error)
        if self._reach.get(peer) is reach:
            return
        self._reach[peer] = reach
        node_id, endpoint = peer.node_id, peer.endpoint
        if error is None:
            self._log.connected(node_id, endpoint)
        elif reach is Reach.REFUSED:
            self._log.refused(node_id, endpoint, error.message)
        else:
            self._log.unreachable(node_id, endpoint, error.message)


def _callee(peer: Peer) -> Process:
    assert peer.ends is not None, "registered processes prove their registration"
    return peer.ends.callee


def _reach(error: PeerError | None) -> Reach:
    if error is None:
        return Reach.CONNECTED
    return Reach.REFUSED if isinstance(error, PeerRefusedError) else Reach.UNREACHABLE
