"""Directed schedules about the controller and the coordinators.

A controller sleeps between two entries of a change, until another one has taken over. A coordinator
cannot reach the leader that it owes a marker, and is deposed meanwhile. A marker arrives after its
repetition, when its producer has begun another transaction. A broker leads a partition of a topic
that it has not heard of.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from lakelog.coordinator.transaction.hanging import Owner
from lakelog.coordinator.transaction.state import TopicPartition, TransactionVersion
from lakelog.metadata.failover import PartitionImage
from lakelog.protocol.api import api_for
from lakelog.protocol.transactions import WriteTxnMarkersRequest
from simulator.brokers.host import BrokerHost
from simulator.cluster.ensemble import STORE
from simulator.cluster.late_bytes import LateBytes, sent_between
from simulator.cluster.plan import OUTLIVED, SESSION_S
from simulator.cluster.scene import LAG_S_MAX, Scene, controls
from simulator.faults.broker_faults import Injector
from simulator.network.sockets import Portion, SimulatedSocket
from waiting import EventTimeoutError, until

_OWED_S_MAX = 8.0
"""In which some transaction ends while its coordinator is cut off from one of its leaders."""
_REPEATED_S = 1.2
_BETWEEN_WRITES_S = 0.000_2
"""Less than a controller needs between two requests to its store."""
_BEGUN_S_MAX = 6.0
"""In which the producer of the transaction begins another one."""

Owed = tuple[int, TopicPartition, int]
"""A producer id, a partition without the marker of its transaction, and the first offset there."""


class ControlSchedules(Scene):
    """The schedules of a plan, as injectors of its nemesis."""

    @property
    def injectors(self) -> dict[str, Injector]:
        """By the names of the faults in a plan."""
        return {
            "deposed controller": self._deposed_controller,
            "stuck marker": self._stuck_marker,
            "late marker": self._late_marker,
            "unheard topic": self._unheard_topic,
            "silent successor": self._silent_successor,
            "mute controller": self._mute_controller,
            OUTLIVED: self._outlived_requests,
        }

    async def _deposed_controller(self) -> None:
        """Have the controller sleep amid a change, until another broker is the controller."""
        host = next(filter(controls, self._hosts), None)
        if host is None:
            return
        process = host.process
        await self._wait_for(lambda: _is_writing(host), SESSION_S)
        host.pause()
        others = [other for other in self._hosts if other is not host]
        await self._wait_for(lambda: any(map(controls, others)), 3 * SESSION_S)
        await asyncio.sleep(self._rng.random() * 0.5)
        if host.process is process:
            host.resume()

    async def _silent_successor(self) -> None:
        """Have a deposed controller return before its successor has written anything."""
        host = next(filter(controls, self._hosts), None)
        if host is None or not self._has_ensemble:
            return
        ways = [(STORE, host.name), (host.name, STORE)]
        self._cut(ways)
        others = [other for other in self._hosts if other is not host]
        with suppress(EventTimeoutError):
            await until(
                lambda: any(map(controls, others)), 2 * SESSION_S, every_s=_BETWEEN_WRITES_S
            )
        successor = next(filter(controls, others), None)
        process = successor.process if successor is not None else None
        if successor is not None:
            successor.pause()
        self._network.mend(ways)
        await asyncio.sleep(SESSION_S / 2)
        if successor is not None and successor.process is process:
            successor.resume()

    async def _mute_controller(self) -> None:
        """Cut the controller off from its peers, in both directions or one; the store hears it."""
        host = next(filter(controls, self._hosts), None)
        if host is None:
            return
        names = [other.name for other in self._hosts if other is not host]
        out, into = [(host.name, name) for name in names], [(name, host.name) for name in names]
        ways = self._rng.choice((out + into, out, into))
        self._cut(ways)
        await asyncio.sleep(SESSION_S * (0.5 + 2.5 * self._rng.random()))
        self._network.mend(ways)

    async def _outlived_requests(self) -> None:
        """Kill a broker, and deliver its last requests to another one when it is gone or back."""
        host, other = self._rng.sample(list(self._hosts), 2)
        with LateBytes(self._network, sent_between(host, other)) as late:
            if self._rng.random() < 0.5:
                # Its registration and its first heartbeats are among them.
                host.kill()
                starting = asyncio.ensure_future(host.start())
                await asyncio.sleep(self._rng.random() * 2)
                host.kill()
                await starting
            else:
                await asyncio.sleep(self._rng.random())
                host.kill()
        await asyncio.sleep(self._rng.random() * SESSION_S * 1.5)
        if self._rng.random() < 0.5:
            await host.bring_back()
            await asyncio.sleep(self._rng.random() * 2)
        late.release()
        await asyncio.sleep(self._rng.random() * SESSION_S)
        await host.bring_back()

    async def _stuck_marker(self) -> None:
        """Cut a coordinator off from a leader that it owes a marker, and depose it.

        The next coordinator completes the transaction, and its producer begins another one before
        the cut ends.
        """
        # The controller has to change the ISRs of both during the cut.
        pair = [host for host in self._hosts if not controls(host)]
        self._rng.shuffle(pair)
        host, leader, *_ = sorted(pair, key=lambda each: not _classic(each))
        if not _classic(host):
            return
        ways = [(host.name, leader.name), (leader.name, host.name)]
        self._cut(ways)
        self._reset_between(host, leader)
        # Until then both commit nothing: no transaction ends.
        await self._wait_for(lambda: not self._follows(leader, host), LAG_S_MAX)
        await self._wait_for(lambda: bool(self._owed(host, leader)), _OWED_S_MAX)
        owed = self._owed(host, leader)
        await self._depose(host)
        await self._wait_for(lambda: self._has_heard(host), SESSION_S)
        await asyncio.sleep(_REPEATED_S)  # now it repeats requests, if it does, as it is now
        if owed:
            await self._wait_for(lambda: _has_begun_again(leader, owed), _BEGUN_S_MAX)
        self._network.mend(ways)

    async def _late_marker(self) -> None:
        """Deliver a marker after its repetition, amid the next transaction of its producer."""
        found: list[tuple[BrokerHost, set[Owed]]] = []

        def is_first(source: SimulatedSocket, portion: Portion) -> bool:
            if found or not _has_markers(portion):
                return False
            ends = source.process, source.other.process
            host, leader = (self._host_of(process) for process in ends)
            if host is not None and leader is not None and (owed := self._owed(host, leader)):
                found.append((leader, owed))
            return bool(found)

        with LateBytes(self._network, is_first) as late:
            await self._wait_for(lambda: bool(late), _OWED_S_MAX)
        for leader, owed in found:
            late.give_up()
            await self._wait_for(partial(_has_begun_again, leader, owed), _BEGUN_S_MAX)
            late.release()

    def _owed(self, host: BrokerHost, leader: BrokerHost) -> set[Owed]:
        """Return the markers that a coordinator has to write to another broker."""
        return {
            (owner.transaction.producer_id, partition, first)
            for owner in _classic(host)
            if owner.transaction.state.is_ending
            for partition in owner.transaction.partitions
            if (first := _first_open(leader, owner.transaction.producer_id, partition)) >= 0
        }

    async def _unheard_topic(self) -> None:
        """Have a broker lead a partition with an open transaction before it hears of the topic.

        It hears nothing of the metadata store, which hears it. Often it dies before it does.
        """
        if not self._has_ensemble:
            return
        hosts = [host for host in self._hosts if not controls(host)]
        host = self._rng.choice(hosts)
        ways = [(STORE, host.name)]
        self._cut(ways)
        await self._wait_for(lambda: self._unheard(host) is not None, SESSION_S)
        found = self._unheard(host)
        if found is None:
            self._network.mend(ways)
            return
        topic_id, state = found
        first = self._host(state.leader)
        if first is not None:
            first.kill()

        def leads() -> bool:
            present = self._image().partition(topic_id, state.partition)
            return present is None or present.leader == host.node_id

        await self._wait_for(leads, SESSION_S)
        await asyncio.sleep(self._rng.random() * SESSION_S)
        if self._rng.random() < 0.5:
            host.kill()
        self._network.mend(ways)
        await self._come_back([host] if first is None else [first, host])

    def _unheard(self, host: BrokerHost) -> tuple[bytes, PartitionImage] | None:
        """Return a partition that a broker may lead next, and has not heard of."""
        if host.server is None:
            return None
        known = host.server.broker.metadata.image
        for topic in self._image().topics:
            if known.topic_by_id(topic.topic_id) is not None:
                continue
            for state in topic.partitions.values():
                isr = [each for each in state.isr if each != state.leader]
                if isr[:1] == [host.node_id] and self._is_open(topic.topic_id, state):
                    return topic.topic_id, state
        return None

    def _is_open(self, topic_id: bytes, state: PartitionImage) -> bool:
        """Return whether two replicas of a partition have the same open transaction."""
        count = 0
        for other in self._hosts:
            partitions = None if other.server is None else other.server.broker.partitions
            found = None if partitions is None else partitions.get(topic_id, state.partition)
            count += found is not None and found.log.producers.first_unstable_offset >= 0
        return count > 1


def _has_markers(portion: Portion) -> bool:
    """Return whether the bytes that a broker sends begin with a request for markers."""
    key = api_for(WriteTxnMarkersRequest).key.to_bytes(2, "big")
    return isinstance(portion, bytes) and portion[4:6] == key


def _classic(host: BrokerHost) -> list[Owner]:
    """Return the transactions of clients before KIP-890 that a running broker coordinates.

    The others have an epoch for each transaction, which protects the next one from old markers.
    """
    known = {} if host.server is None else host.server.broker.transactions.owners()
    return [
        owner
        for owner in known.values()
        if owner.transaction.client_version is TransactionVersion.CLASSIC
    ]


def _has_begun_again(leader: BrokerHost, owed: set[Owed]) -> bool:
    """Return whether a producer has got such a marker, and has written a later transaction."""
    return any(
        _first_open(leader, producer_id, partition) > first
        for producer_id, partition, first in owed
    )


def _first_open(leader: BrokerHost, producer_id: int, topic_partition: TopicPartition) -> int:
    """Return the first offset of a producer's open transaction in a partition, otherwise -1."""
    partitions = None if leader.server is None else leader.server.broker.partitions
    found = None if partitions is None else partitions.get(*topic_partition)
    if found is None or not found.role.is_leader:
        return -1
    entry = found.log.producers.entries.get(producer_id)
    return -1 if entry is None else entry.txn_first_offset


def _is_writing(host: BrokerHost) -> bool:
    """Return whether a change of several entries is pending, or the broker is down."""
    return host.server is None or host.server.broker.metadata.image.pending is not None
