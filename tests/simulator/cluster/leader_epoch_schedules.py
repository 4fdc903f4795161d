"""Directed schedules about the leader epochs of leaders: one leads again, or two elections follow
quickly.

A broker leads again whose followers have truncated their logs in between, or have an answer of its
earlier leader epoch still to come. A leader of a few moments appends records that no other replica
has, and returns to a log that is longer in an earlier epoch.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import FetchRequest
from simulator.brokers.host import BrokerHost
from simulator.cluster.late_bytes import LateBytes
from simulator.cluster.plan import LATE_ANSWER, SESSION_S
from simulator.cluster.pulse import TOPIC as PULSE
from simulator.cluster.scene import Scene, controls
from simulator.faults.broker_faults import Injector
from simulator.network.sockets import Portion, SimulatedSocket

_AHEAD_S = 1.0
"""In which producers write records that one follower does not get. Less than any lag."""
_TRUNCATED_S = 0.3
"""In which a follower of a new leader truncates its log."""
_ANSWERED_S = 0.1
"""In which a leader answers a fetch that it has just received."""
_FAR_AHEAD_S = 1.8
"""In which clients send twice to a leader that acknowledges nothing. Less than the usual lag."""


class _Roles(NamedTuple):
    """The brokers of a partition: its leader, the next one by preference, and the last."""

    topic_id: bytes
    partition: int
    leader: BrokerHost
    heir: BrokerHost
    last: BrokerHost


class _Answers:
    """Chooses the answers of a leader to the fetches of a follower, from the next one on."""

    def __init__(self, leader: BrokerHost, follower: BrokerHost) -> None:
        self._ends = leader.process, follower.process
        self._asked: set[SimulatedSocket] = set()

    def __call__(self, source: SimulatedSocket, portion: Portion) -> bool:
        ends = source.process, source.other.process
        if ends == self._ends[::-1] and _is_fetch(portion):
            self._asked.add(source.other)
        return ends == self._ends and source in self._asked


class LeaderEpochSchedules(Scene):
    """The schedules of a plan, as injectors of its nemesis."""

    @property
    def injectors(self) -> dict[str, Injector]:
        """By the names of the faults in a plan."""
        return {
            "earlier leader epoch": self._earlier_leader_epoch,
            "two elections": self._two_elections,
            LATE_ANSWER: self._late_answer,
        }

    async def _earlier_leader_epoch(self) -> None:
        """Have a leader lead again when one follower has truncated its log, and cannot report it.

        The other follower was behind, led meanwhile without any client, and follows again.
        """
        roles = self._some_roles(heir_controls=False)
        if roles is None:
            return
        leader, last = roles.leader, roles.last
        process = leader.process
        await self._fall_behind(roles)
        leader.pause()
        self._network.mend(_both(leader, roles.heir))
        names = (PULSE, *self._faults.client_names)
        to_clients = [(name, roles.heir.name) for name in names]
        self._cut(to_clients)
        await self._wait_for(lambda: self._leads(roles, roles.heir), 2 * SESSION_S)
        await asyncio.sleep(_TRUNCATED_S)
        self._cut(_both(leader, last))
        if leader.process is process:
            leader.resume()
        await self._wait_for(lambda: self._leads(roles, leader), 2 * SESSION_S)
        self._network.mend(to_clients)
        await asyncio.sleep(1 + self._rng.random())
        self._network.mend(_both(leader, last))

    async def _late_answer(self) -> None:
        """Have a leader lead again, and a follower get the answer to a fetch of its former leader
        epoch.

        The answer has records that no other replica had, at offsets above the only record of the
        leader epoch between the two.
        """
        roles = self._some_roles(heir_controls=False)
        if roles is None:
            return
        leader, heir, last = roles.leader, roles.heir, roles.last
        process = leader.process
        asking = [(last.name, leader.name)]
        self._cut([*_both(leader, heir), *asking])
        with LateBytes(self._network, _Answers(leader, last)) as late:
            await asyncio.sleep(_FAR_AHEAD_S)
            self._network.mend(asking)
            await asyncio.sleep(_ANSWERED_S)
        leader.pause()
        self._network.mend(_both(leader, heir))
        await self._wait_for(lambda: self._leads(roles, heir), 2 * SESSION_S)
        # Not earlier: it may still get records that the former leader has sent before its pause.
        end = _end(roles, heir)
        await self._wait_for(lambda: _end(roles, heir) > end, _AHEAD_S)
        names = (PULSE, *self._faults.client_names)
        to_clients = [(name, heir.name) for name in names]
        self._cut(to_clients)
        await asyncio.sleep(_TRUNCATED_S)
        if leader.process is process:
            leader.resume()
        await self._wait_for(lambda: self._leads(roles, leader), 2 * SESSION_S)
        await self._wait_for(lambda: self._has_heard(last), SESSION_S)
        late.release()
        self._network.mend(to_clients)

    async def _two_elections(self) -> None:
        """Have a follower that is behind lead alone for a moment, and return to a longer log."""
        roles = self._some_roles(heir_controls=True)
        if roles is None:
            return
        leader, heir, last = roles.leader, roles.heir, roles.last
        processes = leader.process, last.process
        await self._fall_behind(roles)
        leader.pause()
        self._network.mend(_both(leader, heir))
        # It keeps its longer log, and is not fenced before the other one leads.
        await asyncio.sleep(SESSION_S * 0.6)
        last.pause()
        await self._wait_for(lambda: self._leads(roles, heir), SESSION_S)
        await asyncio.sleep(_AHEAD_S * 0.8)
        heir.kill()
        if last.process is processes[1]:
            last.resume()
        await asyncio.sleep(self._rng.random())
        if leader.process is processes[0]:
            leader.resume()
        await self._wait_for(lambda: not self._leads(roles, heir), 2 * SESSION_S)
        await self._come_back([heir])

    async def _fall_behind(self, roles: _Roles) -> None:
        """Have the next leader miss records that the other follower gets; both stay in the ISR."""
        self._cut(_both(roles.leader, roles.heir))
        await asyncio.sleep(_AHEAD_S * (0.8 + 0.4 * self._rng.random()))
        self._reset_between(roles.leader, roles.heir)

    def _leads(self, roles: _Roles, host: BrokerHost) -> bool:
        present = self._image().partition(roles.topic_id, roles.partition)
        return present is not None and present.leader == host.node_id

    def _some_roles(self, *, heir_controls: bool) -> _Roles | None:
        """Return a partition whose replicas are in sync, and whose leader is the preferred one.

        heir_controls: whether the next leader has to be the controller, or may be another broker.
        """
        found = []
        for topic in sorted(self._image().topics, key=lambda topic: topic.name):
            for state in topic.partitions.values():
                is_whole = set(state.isr) == set(state.replicas)
                if not is_whole or state.leader != state.replicas[0]:
                    continue
                hosts = [host for each in state.replicas if (host := self._host(each)) is not None]
                if len(hosts) == 3 and (controls(hosts[1]) or not heir_controls):
                    found.append(_Roles(topic.topic_id, state.partition, *hosts))
        # Others may have no writes at the time.
        busy = [each for each in found if self._is_busy(each)] or found
        return self._rng.choice(busy) if busy else None

    def _is_busy(self, roles: _Roles) -> bool:
        topic = self._image().topic_by_id(roles.topic_id)
        return topic is not None and topic.name == PULSE


def _end(roles: _Roles, host: BrokerHost) -> int:
    """Return the log end offset of a replica, -1 while its broker is down."""
    partitions = None if host.server is None else host.server.broker.partitions
    found = None if partitions is None else partitions.get(roles.topic_id, roles.partition)
    return -1 if found is None else found.log.log_end_offset


def _is_fetch(portion: Portion) -> bool:
    """Return whether the bytes that a broker sends begin with a request for records."""
    key = api_for(FetchRequest).key.to_bytes(2, "big")
    return isinstance(portion, bytes) and portion[4:6] == key


def _both(one: BrokerHost, other: BrokerHost) -> list[tuple[str, str]]:
    return [(one.name, other.name), (other.name, one.name)]
