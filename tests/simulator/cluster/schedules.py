"""Directed schedules: faults in an order that random ones hit too seldom.

Each leads to a situation in which a cluster may lose records or promises, with the brokers and the
times drawn by the seed: a follower behind before its leader dies, two brokers down at once, a
broker that returns into a cut, a leader that sleeps until others lead, a broker that sleeps through
a snapshot of the metadata, and a proposed ISR that arrives after its repetitions.
"""

from __future__ import annotations

import asyncio

from lakelog.protocol.api import api_for
from lakelog.protocol.brokers import AlterPartitionRequest
from simulator.brokers.host import BrokerHost
from simulator.cluster.ensemble import STORE
from simulator.cluster.late_bytes import LateBytes
from simulator.cluster.plan import BROKERS, SESSION_S
from simulator.cluster.pulse import TOPIC as PULSE
from simulator.cluster.scene import LAG_S_MAX, Scene, controls
from simulator.faults.broker_faults import Injector
from simulator.network.sockets import Portion, SimulatedSocket

_ALTER_PARTITION = api_for(AlterPartitionRequest)
_REFUSED_S = 1.0
"""In which a leader repeats a proposal that was lost."""


class Schedules(Scene):
    """The schedules of a plan, as injectors of its nemesis."""

    @property
    def injectors(self) -> dict[str, Injector]:
        """By the names of the faults in a plan."""
        return {
            "lagging follower": self._lagging_follower,
            "two down": self._two_down,
            "return into a cut": self._return_into_a_cut,
            "deposed leader": self._deposed_leader,
            "missed snapshot": self._missed_snapshot,
            "late ISR": self._late_isr,
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

        await self._wait_for(has_left, LAG_S_MAX)
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
        await asyncio.sleep(self._rng.random() * 3 * SESSION_S)
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
        host, other, *_ = sorted(drawn, key=controls)
        ways = [(host.name, other.name), (other.name, host.name)]
        if self._rng.random() < 0.3:
            host, ways = self._faults.some_broker(), []
        self._cut(ways)
        if ways:  # until then it commits nothing, and so sends no marker either
            await self._wait_for(lambda: not self._follows(other, host), LAG_S_MAX)
        await asyncio.sleep(self._rng.random() * 3)
        await self._depose(host)
        if ways:
            self._reset_between(host, other)
        await asyncio.sleep(self._rng.random() * 2)
        self._network.mend(ways)

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

    async def _late_isr(self) -> None:
        """Deliver a proposal of an ISR after its repetitions, and kill all but the new member.

        The member is fenced before a repetition arrives, and unfenced again before the first
        proposal does. It lacks the records that were committed in between. If there is
        another broker, the proposals travel through it.
        """
        found = self._leader_and_follower()
        if found is None:
            return
        topic_id, number, (leader, follower, controller) = found
        between = [host for host in self._hosts if host not in (leader, follower, controller)]
        if between:
            self._network.filter(leader.name, controller.name)
        senders = [leader, *between]

        def is_in_sync() -> bool:
            present = self._image().partition(topic_id, number)
            return present is not None and follower.node_id in present.isr

        follower.pause()
        await self._wait_for(lambda: not is_in_sync(), 2 * LAG_S_MAX)

        def is_proposal(source: SimulatedSocket, portion: Portion) -> bool:
            is_sent = source.process in [host.process for host in senders]
            is_for_controller = source.other.process is controller.process
            return is_sent and is_for_controller and _proposes_isr(portion, leader)

        with LateBytes(self._network, is_proposal) as late:
            follower.resume()
            await self._wait_for(lambda: bool(late), 2 * SESSION_S)
            follower.pause()
            await self._lose_proposals(late, leader, follower)
        # The leader repeats the last late proposal, too; the repetition arrives.
        late.give_up()
        await asyncio.sleep(_REFUSED_S)
        self._network.mend([(STORE, leader.name)])
        await asyncio.sleep(SESSION_S)  # in which records are committed without the follower
        ways = [(leader.name, follower.name), (follower.name, leader.name)]
        self._cut(ways)
        follower.resume()
        await self._wait_for(lambda: not self._is_fenced(follower), 2 * SESSION_S)
        late.release()
        await asyncio.sleep(self._rng.random() * 0.5)
        others = [host for host in self._replicas(topic_id, number) if host is not follower]
        for host in others:
            host.kill()
        await asyncio.sleep(2 * SESSION_S)
        self._network.mend(ways)
        self._network.filtered.discard((leader.name, controller.name))
        await self._come_back(others)

    def _replicas(self, topic_id: bytes, number: int) -> list[BrokerHost]:
        state = self._image().partition(topic_id, number)
        found = map(self._host, state.replicas if state is not None else ())
        return [host for host in found if host is not None]

    async def _lose_proposals(
        self, late: LateBytes, leader: BrokerHost, follower: BrokerHost
    ) -> None:
        """Break each connection with a late proposal, until the follower is fenced.

        Its leader does not hear of that, if its metadata come from another machine.
        """
        until = self._simulator.loop.time() + 2 * SESSION_S
        deaf_at = self._simulator.loop.time() + 0.7 * SESSION_S
        while self._simulator.loop.time() < until and not self._is_fenced(follower):
            late.give_up()
            if self._has_ensemble and self._simulator.loop.time() >= deaf_at:
                self._network.cut(STORE, leader.name)
            await asyncio.sleep(0.05)

    def _leader_and_follower(
        self,
    ) -> tuple[bytes, int, tuple[BrokerHost, BrokerHost, BrokerHost]] | None:
        """Return a partition whose replicas are in sync: its leader, a follower, the controller.

        With more brokers than replicas not each one leads: the partition has writes.
        """
        controller = next(filter(controls, self._hosts), None)
        first = PULSE if len(self._hosts) > BROKERS else ""
        topics = sorted(self._image().topics, key=lambda topic: (topic.name != first, topic.name))
        states = [(topic.topic_id, each) for topic in topics for each in topic.partitions.values()]
        for topic_id, state in states if controller is not None else ():
            others = [host for host in self._hosts if host is not controller]
            leader = next((host for host in others if host.node_id == state.leader), None)
            if leader is not None and set(state.isr) == set(state.replicas):
                assert controller is not None
                # A request for ISRs travels through the first other broker: not this one.
                follower = max((host for host in others if host is not leader), key=_node_id)
                if follower.node_id in state.isr:
                    return topic_id, state.partition, (leader, follower, controller)
        return None

    def _is_fenced(self, host: BrokerHost) -> bool:
        return host.node_id in self._image().fenced


def _node_id(host: BrokerHost) -> int:
    return host.node_id


def _proposes_isr(portion: Portion, leader: BrokerHost) -> bool:
    """Return whether the bytes that a broker sends begin with a request of this one for ISRs."""
    if not isinstance(portion, bytes) or portion[4:6] != _ALTER_PARTITION.key.to_bytes(2, "big"):
        return False
    # A size, key, version and number, the name of the client, and no tagged fields (KIP-482).
    begin = 14 + int.from_bytes(portion[12:14], "big") + 1
    return portion[begin : begin + 4] == leader.node_id.to_bytes(4, "big")
