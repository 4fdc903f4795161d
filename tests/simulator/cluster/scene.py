"""The parts of schedules of faults: cuts, deaths, sleeps, and waits for a situation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import MetadataImage
from simulator.brokers.host import BrokerHost
from simulator.cluster.ensemble import STORE
from simulator.cluster.plan import SESSION_S
from simulator.engine.process import Process
from simulator.engine.simulator import Simulator
from simulator.faults.broker_faults import BrokerFaults
from simulator.network.network import Network
from waiting import EventTimeoutError, until

_POLL_S = 0.01
LAG_S_MAX = 6.0
"""In which a leader proposes an ISR without a follower that fetches nothing."""


class Scene:
    """The brokers of a cluster, and their network.

    Args:
        may_lose_power: returns whether a broker may: every replica is in sync, or syncs records.
        image: returns the newest metadata image of any broker.
        has_ensemble: whether the metadata store is on other machines.
    """

    def __init__(
        self,
        simulator: Simulator,
        network: Network,
        hosts: Sequence[BrokerHost],
        faults: BrokerFaults,
        rng: random.Random,
        may_lose_power: Callable[[], bool],
        image: Callable[[], MetadataImage],
        *,
        has_ensemble: bool,
    ) -> None:
        self._simulator = simulator
        self._network = network
        self._hosts = hosts
        self._faults = faults
        self._rng = rng
        self._may_lose_power = may_lose_power
        self._image = image
        self._has_ensemble = has_ensemble

    async def _depose(self, host: BrokerHost) -> None:
        """Keep a process from the metadata until its session is over."""
        process = host.process
        to_store = [(STORE, host.name), (host.name, STORE)]
        sleeps = not self._has_ensemble or self._rng.random() < 0.5
        if sleeps:
            host.pause()
        else:
            self._cut(to_store)
        await asyncio.sleep(SESSION_S * (1.2 + self._rng.random()))
        self._network.mend(to_store)
        if sleeps and host.process is process:
            host.resume()

    def _some_follower(self) -> tuple[PartitionImage, bytes, BrokerHost, BrokerHost] | None:
        """Return a partition with its topic id, its leader, and an in-sync follower."""
        found = [
            (state, topic.topic_id, leader, follower)
            for topic in sorted(self._image().topics, key=lambda topic: topic.name)
            for _, state in sorted(topic.partitions.items())
            if (leader := self._host(state.leader)) is not None
            for node_id in state.isr
            if node_id != state.leader and (follower := self._host(node_id)) is not None
        ]
        return self._rng.choice(found) if found else None

    def _host(self, node_id: int) -> BrokerHost | None:
        """Return the broker of the cluster with this id; None for a removed one and for -1."""
        return next((host for host in self._hosts if host.node_id == node_id), None)

    def _follows(self, host: BrokerHost, leader: BrokerHost) -> bool:
        """Return whether a broker is in sync with partitions of this leader."""
        return any(
            host.node_id in state.isr
            for topic in self._image().topics
            for state in topic.partitions.values()
            if state.leader == leader.node_id
        )

    def _has_heard(self, host: BrokerHost) -> bool:
        """Return whether a broker knows the newest metadata, or is down."""
        return host.server is None or host.server.broker.metadata.image.end >= self._image().end

    def _is_in_sync(self, host: BrokerHost) -> bool:
        return any(
            host.node_id in state.isr
            for topic in self._image().topics
            for state in topic.partitions.values()
        )

    def _cut(self, ways: Iterable[tuple[str, str]]) -> None:
        for way in ways:
            self._network.cut(*way)

    def _host_of(self, process: Process) -> BrokerHost | None:
        """Return the broker that runs as this process; None for a client or a dead process."""
        return next((host for host in self._hosts if host.process is process), None)

    def _reset_between(self, host: BrokerHost, other: BrokerHost) -> None:
        sockets = host.process.sockets if host.process is not None else []
        for socket in list(sockets):
            if socket.other.process is other.process:
                self._network.reset(socket)

    async def _mend_later(self, ways: Iterable[tuple[str, str]], seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._network.mend(ways)

    async def _wait_for(self, is_so: Callable[[], bool], seconds: float) -> None:
        """Go on as soon as it is so, and after `seconds` in any case."""
        with suppress(EventTimeoutError):
            await until(is_so, seconds, every_s=_POLL_S)

    async def _come_back(self, hosts: Iterable[BrokerHost]) -> None:
        await asyncio.sleep(self._rng.random() * SESSION_S)
        await asyncio.gather(*(host.bring_back() for host in hosts))


def controls(host: BrokerHost) -> bool:
    """Return whether a running broker is the controller, as far as it knows."""
    server = host.server
    return server is not None and server.broker.metadata.controller_id == host.node_id
