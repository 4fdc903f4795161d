"""A connection that stalls, to a controller that answers otherwise, holds up no ISR for long."""

from __future__ import annotations

import asyncio

import pytest

from one_way_filter import led
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import STORES, ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world
from simulator.network.sockets import Portion, SimulatedSocket

ALTER_PARTITION = (56).to_bytes(2, "big")
CUT_S = 15.0


class Stall:
    """Cuts a leader off a follower, and stalls the connection of its first proposal, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left_s: list[float | None] = []
        """After how long a partition with that follower had a smaller ISR."""
        self._stalled: list[SimulatedSocket] = []
        monkeypatch.setattr(ClusterNemesis, "_cut_store", lambda nemesis: self._run(nemesis))

    async def _run(self, nemesis: ClusterNemesis) -> None:
        servers = {host.name: host.server for host in nemesis._hosts if host.server is not None}
        controller = f"broker-{next(iter(servers.values())).broker.metadata.controller_id}"
        leader = next(
            (each for each in servers if each != controller and any(led(servers[each]))), ""
        )
        if self.left_s or not leader or len(servers) < 3 or nemesis._cluster.image.fenced:
            return
        (follower,) = servers.keys() - {leader, controller}
        network, loop = nemesis._network, asyncio.get_running_loop()

        def stalls(source: SimulatedSocket, portion: Portion) -> bool:
            ends = source.process.host, source.other.process.host
            if self._stalled or ends != (leader, controller) or not isinstance(portion, bytes):
                return False
            if portion[4:6] != ALTER_PARTITION:
                return False
            self._stalled.append(source)
            return True

        network.delays.append(stalls)
        ways = [(leader, follower), (follower, leader)]
        for way in ways:
            network.cut(*way)
        began, left_s = loop.time(), None
        while loop.time() < began + CUT_S:
            await asyncio.sleep(0.02)
            if left_s is None and any(len(each.role.isr) == 2 for each in led(servers[leader])):
                left_s = loop.time() - began
        network.delays.remove(stalls)
        network.mend(ways)
        for source in self._stalled:
            network.release(source)
        assert self._stalled, "a proposal was under way"
        self.left_s.append(left_s)


@pytest.mark.parametrize("store", STORES)
def test_a_proposal_travels_over_a_new_connection(
    monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    stall = Stall(monkeypatch)
    plan = ClusterPlan(
        8.0, frozenset({"plain", "idempotent"}), frozenset({"cut store"}), store=store
    )
    assert run_world(ClusterWorld(1, plan)).violations == ()
    (left_s,) = stall.left_s
    assert left_s is not None
    assert left_s < 6.0, "1.2 s without a fetch, 2 s without an answer, and the repetition"
