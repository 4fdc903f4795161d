"""A broker that the others lose, and its coordinators, during a cut and after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.server.app import Server
from one_way_filter import led
from simulator.cluster.ensemble import STORE
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import SESSION_S, ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world
from simulator.network.network import Network

CUT_S = 4 * SESSION_S
Lose = Callable[[ClusterNemesis, str, list[str]], Callable[[], None]]
"""Loses a broker for the others, and returns how to end that."""


class Seen(NamedTuple):
    """A broker during a cut between it and all others.

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


class LostBroker:
    """Loses one broker for all others, once.

    of_controller: whether that broker is the controller.
    of_store_s: after which that broker loses its store, too, so that it learns of nothing.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        lose: Lose,
        *,
        of_controller: bool = False,
        of_store_s: float | None = None,
    ) -> None:
        self._lose = lose
        self._of_controller = of_controller
        self._of_store_s = of_store_s
        self._seen: list[Seen] = []
        monkeypatch.setattr(ClusterNemesis, "_cut_store", lambda nemesis: self._run(nemesis))

    def run(self, seed: int, store: str = "zookeeper") -> Seen:
        """Return the fate of the broker in the world of a seed, which has to break no law."""
        flows = frozenset({"plain", "idempotent", "classic group"})
        plan = ClusterPlan(8.0, flows, frozenset({"cut store"}), store=store)
        plan.settings["offsets.topic.num.partitions"] = "1"
        assert run_world(ClusterWorld(seed, plan)).violations == ()
        (seen,) = self._seen
        return seen

    async def _run(self, nemesis: ClusterNemesis) -> None:
        servers = {host.name: host.server for host in nemesis._hosts if host.server is not None}
        controller = f"broker-{next(iter(servers.values())).broker.metadata.controller_id}"
        fit = [each for each in servers if (each == controller) is self._of_controller]
        # The coordinator of all groups, if it is among them.
        fit.sort(key=lambda each: servers[each].broker.groups.leader_epoch(0) is None)
        name = next((each for each in fit if any(led(servers[each]))), None)
        if self._seen or name is None or len(servers) < 3 or nemesis._cluster.image.fenced:
            return
        mends = [self._lose(nemesis, name, [each for each in servers if each != name])]
        if self._of_store_s is not None:
            ways = [(name, STORE), (STORE, name)]
            loop = asyncio.get_running_loop()
            loop.call_later(self._of_store_s, cut, nemesis._network, ways)
            mends.append(lambda: nemesis._network.mend(ways))
        self._seen.append(await watch(nemesis, servers, name, mends))


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
