"""A broker that calls all others, but that none can call, does not stop its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.server.app import Server
from lakelog.server.peers.deafness import NONE, Deafness
from one_way_filter import led, refuse
from simulator.cluster.ensemble import STORE
from simulator.cluster.execution import run_cluster
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import SESSION_S, ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.network.network import Network

SEEDS = (1, 2, 3)
CUT_S = 4 * SESSION_S


class Seen(NamedTuple):
    """A broker during a cut in which no other broker could connect to it.

    fenced_s: after which the others knew that it was fenced; None for never.
    led: the partitions that it led before.
    moved: how many of these another broker led then.
    stale_s: for how long its group coordinator answered beside a successor.
    is_back: whether it was unfenced after the cut, and not within.
    """

    fenced_s: float | None
    led: int
    moved: int
    stale_s: float
    is_back: bool


class Filter:
    """Refuses the connections of all other brokers to one broker, once.

    of_controller: whether that broker is the controller.
    of_store_s: after which that broker loses its store, too, so that it learns of nothing.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        of_controller: bool = False,
        of_store_s: float | None = None,
    ) -> None:
        self._of_controller = of_controller
        self._of_store_s = of_store_s
        self.seen: list[Seen] = []
        monkeypatch.setattr(ClusterNemesis, "_cut_store", lambda nemesis: self._run(nemesis))

    async def _run(self, nemesis: ClusterNemesis) -> None:
        servers = {host.name: host.server for host in nemesis._hosts if host.server is not None}
        controller = f"broker-{next(iter(servers.values())).broker.metadata.controller_id}"
        fit = [each for each in servers if (each == controller) is self._of_controller]
        # The coordinator of all groups, if it is among them.
        fit.sort(key=lambda each: servers[each].broker.groups.leader_epoch(0) is None)
        name = next((each for each in fit if any(led(servers[each]))), None)
        if self.seen or name is None or len(servers) < 3 or nemesis._cluster.image.fenced:
            return
        others = [each for each in servers if each != name]
        mends = [refuse(nemesis._network, each, name) for each in others]
        if self._of_store_s is not None:
            ways = [(name, STORE), (STORE, name)]
            loop = asyncio.get_running_loop()
            loop.call_later(self._of_store_s, cut, nemesis._network, ways)
            mends.append(lambda: nemesis._network.mend(ways))
        self.seen.append(await watch(nemesis, servers, name, mends))


def cut(network: Network, ways: list[tuple[str, str]]) -> None:
    for way in ways:
        network.cut(*way)


async def watch(
    nemesis: ClusterNemesis,
    servers: dict[str, Server],
    name: str,
    mends: list[Callable[[], None]],
) -> Seen:
    """Return what happens to a broker until `CUT_S` after its cut, and after that."""
    deaf, other = servers[name], next(servers[each] for each in servers if each != name)
    node_id, loop = deaf.broker.node_id, asyncio.get_running_loop()
    before = [(each.topic_id, each.index) for each in led(deaf)]
    began = last = loop.time()
    fenced_s, stale_s, was_unfenced = None, 0.0, False
    elsewhere: set[tuple[bytes, int]] = set()
    while loop.time() < began + CUT_S:
        await asyncio.sleep(0.02)
        is_fenced = node_id in other.broker.image.fenced
        if is_fenced and fenced_s is None:
            fenced_s = loop.time() - began
            await asyncio.sleep(0.2)
            elsewhere = led_by_others(servers, name)
        was_unfenced |= fenced_s is not None and not is_fenced
        if answers_beside_successor(deaf, servers):
            stale_s += loop.time() - last
        last = loop.time()
    for mend in reversed(mends):
        mend()
    await asyncio.sleep(SESSION_S)
    is_back = not was_unfenced and node_id not in other.broker.image.fenced
    return Seen(fenced_s, len(before), len(elsewhere.intersection(before)), stale_s, is_back)


def led_by_others(servers: dict[str, Server], name: str) -> set[tuple[bytes, int]]:
    return {
        (each.topic_id, each.index)
        for other, server in servers.items()
        if other != name
        for each in server.broker.partitions
        if each.role.is_leader
    }


def answers_beside_successor(deaf: Server, servers: dict[str, Server]) -> bool:
    epoch = deaf.broker.groups.leader_epoch(0)
    known = [each.broker.groups.leader_epoch(0) for each in servers.values()]
    newest = max((each for each in known if each is not None), default=None)
    if epoch is None or epoch == newest:
        return False
    try:
        deaf.broker.groups._host.shard_of("any")
    except KafkaError as error:
        assert error.code is ErrorCode.NOT_COORDINATOR
        return False
    return True


def run(found: Filter, seed: int) -> Seen:
    flows = frozenset({"plain", "idempotent", "classic group"})
    plan = ClusterPlan(8.0, flows, frozenset({"cut store"}))
    plan.settings["offsets.topic.num.partitions"] = "1"
    assert run_cluster(ClusterWorld(seed, plan)).violations == ()
    (seen,) = found.seen
    return seen


@pytest.mark.parametrize("of_controller", [False, True], ids=["leader", "controller"])
@pytest.mark.parametrize("seed", SEEDS)
def test_others_lead_within_a_session_and_two_seconds(
    monkeypatch: pytest.MonkeyPatch, seed: int, of_controller: bool
) -> None:
    seen = run(Filter(monkeypatch, of_controller=of_controller), seed)
    assert seen.fenced_s is not None
    assert 0.8 * SESSION_S < seen.fenced_s < SESSION_S + 2.0
    assert seen.moved == seen.led > 0
    assert seen.stale_s == 0.0
    assert seen.is_back


STORE_S = 1.0 * SESSION_S
"""Shortly before the broker is fenced."""


@pytest.mark.parametrize("seed", SEEDS)
def test_its_coordinators_answer_no_more_when_it_is_fenced(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    seen = run(Filter(monkeypatch, of_store_s=STORE_S), seed)
    assert seen.moved == seen.led > 0
    assert seen.stale_s == 0.0


def test_without_denials_two_coordinators_would_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(found: Deafness) -> frozenset[int]:
        brokers = found._brokers.items()
        return frozenset(
            node_id for node_id, broker in brokers if broker.missed_s >= 0.6 * SESSION_S
        )

    monkeypatch.setattr(Deafness, "deaf", deaf)
    monkeypatch.setattr(Deafness, "denial", lambda found, node_id, is_controller: NONE)
    seen = [run(Filter(monkeypatch, of_store_s=STORE_S), seed) for seed in SEEDS]
    assert any(each.stale_s > 0.0 for each in seen)
