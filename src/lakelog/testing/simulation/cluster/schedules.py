"""Directed schedules: faults in an order that random ones hit too seldom.

Each leads to a situation in which a cluster may lose records or promises, with the brokers and the
times drawn by the seed: a follower behind before its leader dies, two brokers down at once, a
broker that returns into a cut, a leader that sleeps until others lead, and a broker that sleeps
through a snapshot of the metadata.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import MetadataImage
from lakelog.testing.simulation.brokers.host import BrokerHost
from lakelog.testing.simulation.cluster.ensemble import STORE
from lakelog.testing.simulation.cluster.plan import SESSION_S
from lakelog.testing.simulation.engine.simulator import Simulator
from lakelog.testing.simulation.faults.broker_faults import BrokerFaults, Injector
from lakelog.testing.simulation.network.network import Network

_POLL_S = 0.01
_LAG_S_MAX = 6.0
"""In which a leader proposes an ISR without a follower that fetches nothing."""


class Schedules:
    """The schedules of a plan, as injectors of its nemesis.

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

    @property
    def injectors(self) -> dict[str, Injector]:
        """By the names of the faults in a plan."""
        return {
            "lagging follower": self._lagging_follower,
            "two down": self._two_down,
            "return into a cut": self._return_into_a_cut,
            "deposed leader": self._deposed_leader,
            "missed snapshot": self._missed_snapshot,
        }

    async def _lagging_follower(self) -> None:
        """Cut a follower off from its leader until it has left the ISR; often kill the leader."""
        found = self._some_follower()
        if found is None:
            return
        state, topic_id, leader, follower = found
        ways = [(leader.name, follower.name), (follower.name, leader.name)]
        if self._rng.random() < 0.5:
            ways = [self._rng.choice(ways)]
        self._cut(ways)

        def has_left() -> bool:
            present = self._image().partition(topic_id, state.partition)
            return present is None or follower.node_id not in present.isr

        await self._wait_for(has_left, _LAG_S_MAX)
        if self._rng.random() < 0.5:
            await self._faults.await_acknowledgement()
            leader.kill()
        await asyncio.sleep(self._rng.random())
        self._network.mend(ways)
        await self._come_back([leader])

    async def _two_down(self) -> None:
        """Kill a broker, and another one while the ISRs are small: it alone may be eligible."""
        first, second = self._rng.sample(list(self._hosts), 2)
        loses_power = self._may_lose_power() and self._rng.random() < 0.5
        first.kill()
        await self._wait_for(lambda: not self._is_in_sync(first), 2 * SESSION_S)
        await self._faults.await_acknowledgement()
        if loses_power:
            self._faults.cut_power(second)
        else:
            second.kill()
        await asyncio.sleep(self._rng.random() * 1.5 * SESSION_S)
        self._network.down.discard(second.name)
        await second.bring_back()
        await self._come_back([first])

    async def _return_into_a_cut(self) -> None:
        """Kill a broker that finds another one unreachable at its return."""
        host = self._faults.some_broker()
        other = self._rng.choice([each for each in self._hosts if each is not host])
        if self._may_lose_power() and self._rng.random() < 0.5:
            self._faults.cut_power(host)
        else:
            host.kill()
        ways = [(host.name, other.name), (other.name, host.name)]
        self._cut(ways)
        await asyncio.sleep(self._rng.random())
        self._network.down.discard(host.name)
        cut_s = SESSION_S * (1 + self._rng.random())
        await asyncio.gather(host.bring_back(), self._mend_later(ways, cut_s))

    async def _deposed_leader(self) -> None:
        """Have a broker sleep, or miss the metadata, until others lead; often it wakes into a cut.

        Requests under way are lost. Its next ones arrive after the cut, from a leader and
        coordinator of an earlier epoch.
        """
        # The controller has to change the ISRs during the cut. With the cut at its side the two
        # brokers would commit nothing.
        drawn = self._rng.sample(list(self._hosts), len(self._hosts))
        host, other, *_ = sorted(drawn, key=_controls)
        ways = [(host.name, other.name), (other.name, host.name)]
        if self._rng.random() < 0.3:
            host, ways = self._faults.some_broker(), []
        self._cut(ways)
        if ways:  # until then it commits nothing, and so sends no marker either
            await self._wait_for(lambda: not self._follows(other, host), _LAG_S_MAX)
        await asyncio.sleep(self._rng.random() * 3)
        await self._depose(host)
        if ways:
            self._reset_between(host, other)
        await asyncio.sleep(self._rng.random() * 2)
        self._network.mend(ways)

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

    async def _missed_snapshot(self) -> None:
        """Have a broker sleep while another one restarts, and the log is replaced by a snapshot."""
        sleeper, other = self._rng.sample(list(self._hosts), 2)
        process = sleeper.process
        sleeper.pause()
        await asyncio.sleep(SESSION_S * 1.3)
        other.kill()
        await asyncio.sleep(0.2 + self._rng.random())
        await other.bring_back()
        await asyncio.sleep(0.5 + self._rng.random() * SESSION_S)
        awake = [host for host in self._hosts if host is not sleeper]
        await asyncio.gather(*(host.write_snapshot() for host in awake))
        if sleeper.process is process:
            sleeper.resume()

    # Parts

    def _some_follower(self) -> tuple[PartitionImage, bytes, BrokerHost, BrokerHost] | None:
        """Return a partition with its topic id, its leader, and an in-sync follower."""
        found = [
            (state, topic.topic_id, state.leader, follower)
            for topic in sorted(self._image().topics, key=lambda topic: topic.name)
            for _, state in sorted(topic.partitions.items())
            if state.leader >= 0
            for follower in state.isr
            if follower != state.leader
        ]
        if not found:
            return None
        state, topic_id, leader, follower = self._rng.choice(found)
        return state, topic_id, self._hosts[leader - 1], self._hosts[follower - 1]

    def _follows(self, host: BrokerHost, leader: BrokerHost) -> bool:
        """Return whether a broker is in sync with partitions of this leader."""
        return any(
            host.node_id in state.isr
            for topic in self._image().topics
            for state in topic.partitions.values()
            if state.leader == leader.node_id
        )

    def _is_in_sync(self, host: BrokerHost) -> bool:
        return any(
            host.node_id in state.isr
            for topic in self._image().topics
            for state in topic.partitions.values()
        )

    def _cut(self, ways: Iterable[tuple[str, str]]) -> None:
        for way in ways:
            self._network.cut(*way)

    def _reset_between(self, host: BrokerHost, other: BrokerHost) -> None:
        sockets = host.process.sockets if host.process is not None else []
        for socket in list(sockets):
            if socket.other.process is other.process:
                self._network.reset(socket)

    async def _mend_later(self, ways: Iterable[tuple[str, str]], seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._network.mend(ways)

    async def _wait_for(self, is_so: Callable[[], bool], seconds: float) -> None:
        until = self._simulator.loop.time() + seconds
        while self._simulator.loop.time() < until and not is_so():  # noqa: ASYNC110 - an image has no event
            await asyncio.sleep(_POLL_S)

    async def _come_back(self, hosts: Iterable[BrokerHost]) -> None:
        await asyncio.sleep(self._rng.random() * SESSION_S)
        await asyncio.gather(*(host.bring_back() for host in hosts))


def _controls(host: BrokerHost) -> bool:
    """Return whether a running broker is the controller, as far as it knows."""
    server = host.server
    return server is not None and server.broker.metadata.controller_id == host.node_id
