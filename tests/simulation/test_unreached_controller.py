"""A leader that does not reach the controller stays while another broker reaches both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest

from lakelog.server.controller.relays import DIRECT, Relays
from one_way_filter import led, refuse
from repetitions import first_of
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import SESSION_S, ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world
from simulator.network.network import Network

CUT_S = 4 * SESSION_S
SEEDS = (1, 2, 3)


class Seen(NamedTuple):
    """A leader during a cut between its host and that of the controller."""

    kept_epochs: bool
    """Whether it was not fenced, and still leads each partition in the same epoch."""
    committed: int
    """Records that it committed after a session and two seconds."""
    answers: bool
    """Whether its coordinators answered all the time."""
    isrs: set[tuple[int, ...]]
    """Of the partitions with such records."""


class LostWay:
    """Cuts a leader from the controller once.

    one_way: whether the controller can still connect to the leader.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, one_way: bool = False) -> None:
        self._cut = refuse if one_way else cut
        self.seen: list[Seen] = []
        monkeypatch.setattr(ClusterNemesis, "_cut_store", lambda nemesis: self._run(nemesis))

    async def _run(self, nemesis: ClusterNemesis) -> None:
        servers = {host.name: host.server for host in nemesis._hosts if host.server is not None}
        controller = f"broker-{next(iter(servers.values())).broker.metadata.controller_id}"
        name = next(
            (each for each in servers if each != controller and any(led(servers[each]))), None
        )
        if self.seen or name is None or nemesis._cluster.image.fenced:
            return
        server = servers[name]
        before = {each: each.leader_epoch for each in led(server)}
        mend = self._cut(nemesis._network, name, controller)
        await asyncio.sleep(SESSION_S + 2.0)
        committed = {each: each.watermark.offset for each in before}
        lease = server._coordinators._lease
        answers = lease.holds()
        for _ in range(100):
            await asyncio.sleep((CUT_S - SESSION_S - 2.0) / 100)
            answers = answers and lease.holds()
        after = {each: each.leader_epoch for each in led(server)}
        written = [each for each in before if each.watermark.offset > committed[each]]
        self.seen.append(
            Seen(
                before == after and not nemesis._cluster.image.fenced,
                sum(each.watermark.offset - committed[each] for each in written),
                answers,
                {each.role.isr for each in written},
            )
        )
        mend()


def cut(network: Network, leader: str, controller: str) -> Callable[[], None]:
    """Lose all bytes between two hosts; return how to end that."""
    ways = [(leader, controller), (controller, leader)]
    for way in ways:
        network.cut(*way)
    return lambda: network.mend(ways)


@pytest.mark.parametrize("one_way", [False, True], ids=["cut", "filtered"])
@pytest.mark.parametrize("seed", first_of(SEEDS))
def test_a_leader_cut_off_from_the_controller_alone_stays(
    monkeypatch: pytest.MonkeyPatch, seed: int, one_way: bool
) -> None:
    lost = LostWay(monkeypatch, one_way=one_way)
    plan = ClusterPlan(6.0, frozenset({"plain", "idempotent"}), frozenset({"cut store"}))
    assert run_world(ClusterWorld(seed, plan)).violations == ()
    (seen,) = lost.seen
    assert seen.kept_epochs
    assert seen.committed > 0
    assert seen.answers
    in_sync = {3} if one_way else {2}
    assert {len(isr) for isr in seen.isrs} == in_sync, "the controller copies if it can"


def test_without_another_way_the_controller_fences_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Relays, "_ways", lambda relays, controller_id, **_: iter([DIRECT]))
    lost = LostWay(monkeypatch)
    plan = ClusterPlan(6.0, frozenset({"plain", "idempotent"}), frozenset({"cut store"}))
    run_world(ClusterWorld(SEEDS[0], plan))
    assert not lost.seen[0].kept_epochs


def test_a_controller_that_no_broker_can_call_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    successors: list[int] = []

    async def filter_calls(nemesis: ClusterNemesis) -> None:
        running = {host.name: host.server for host in nemesis._hosts if host.server is not None}
        metadata = next(iter(running.values())).broker.metadata
        controller = f"broker-{metadata.controller_id}"
        others = [each for each in running if each != controller]
        if successors or len(others) < 2:
            return
        mends = [refuse(nemesis._network, each, controller) for each in others]
        # The partitions that it leads stand still meanwhile, as no broker can copy from it.
        await asyncio.sleep(1.2 * SESSION_S)
        successors.append(running[others[0]].broker.metadata.controller_id)
        for mend in reversed(mends):
            mend()
        assert f"broker-{successors[0]}" in others

    monkeypatch.setattr(ClusterNemesis, "_cut_store", filter_calls)
    plan = ClusterPlan(6.0, frozenset({"plain", "idempotent"}), frozenset({"cut store"}))
    assert run_world(ClusterWorld(SEEDS[0], plan)).violations == ()
    assert successors
