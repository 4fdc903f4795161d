"""Brokers that start while the controller does not answer replace it, if they are a majority."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest

from simulator.brokers.host import BrokerHost
from simulator.cluster.execution import run_cluster
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import SESSION_S, STORES, ClusterPlan
from simulator.cluster.world import ClusterWorld

MUTE_S = 8 * SESSION_S
SERVED_WITHIN_S = 3 * SESSION_S
SEEDS = (1, 2)


class Seen(NamedTuple):
    """The brokers that restarted while the controller reached the metadata store alone."""

    served_s: float
    """When all of them were unfenced; infinite if not before the end of the fault."""
    successors: list[int]
    """The holders of new terms during the fault and for a session after it, without former ones.

    A mute controller may resign and take the term again."""
    last_is_former: bool
    """Whether the mute controller was the last one."""


class Muted:
    """Cuts the controller off from its peers once, and restarts some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, restarted: int) -> None:
        self._restarted = restarted
        self.seen: list[Seen] = []
        monkeypatch.setattr(ClusterNemesis, "_cut_clients", lambda nemesis: self._run(nemesis))

    async def _run(self, nemesis: ClusterNemesis) -> None:
        await asyncio.sleep(SESSION_S)
        former = nemesis._controller()
        others = [each for each in nemesis._hosts if each is not former]
        if self.seen or former is None or nemesis._cluster.image.fenced:
            return
        mend = mute(nemesis, former, others)
        loop, terms = nemesis._simulator.loop, {newest_term(nemesis): None}
        starting = others[: self._restarted]
        for each in starting:
            each.kill(power=True)
        begun = loop.time()
        coming = [asyncio.ensure_future(each.bring_back()) for each in starting]
        served_s = float("inf")
        while loop.time() < begun + MUTE_S:
            if served_s == float("inf") and serve(nemesis, others):
                served_s = loop.time() - begun
            terms[newest_term(nemesis)] = None
            await asyncio.sleep(0.05)
        mend()
        await asyncio.gather(*coming)
        await asyncio.sleep(SESSION_S)
        terms[newest_term(nemesis)] = None
        holders = [each for _, each in terms if each >= 0]
        successors = [each for each in holders if each != former.node_id]
        self.seen.append(Seen(served_s, successors, holders[-1] == former.node_id))


def mute(
    nemesis: ClusterNemesis, controller: BrokerHost, others: list[BrokerHost]
) -> Callable[[], None]:
    pairs = [(controller.name, each.name) for each in others]
    ways = pairs + [(there, here) for here, there in pairs]
    for way in ways:
        nemesis._network.cut(*way)
    return lambda: nemesis._network.mend(ways)


def newest_term(nemesis: ClusterNemesis) -> tuple[int, int]:
    """Return the epoch and the holder of the newest term that a broker knows."""
    servers = [each.server for each in nemesis._hosts if each.server is not None]
    terms = [each.broker.metadata.term for each in servers]
    return max((term.epoch, term.broker_id) for term in terms)


def serve(nemesis: ClusterNemesis, hosts: list[BrokerHost]) -> bool:
    return all(
        each.server is not None for each in hosts
    ) and nemesis._cluster.image.fenced.isdisjoint(each.node_id for each in hosts)


def run(monkeypatch: pytest.MonkeyPatch, seed: int, store: str, restarted: int) -> Seen:
    muted = Muted(monkeypatch, restarted)
    plan = ClusterPlan(
        6.0, frozenset({"plain", "idempotent"}), frozenset({"cut clients"}), store=store
    )
    plan.settings["log.durability"] = "fsync"
    assert run_cluster(ClusterWorld(seed, plan)).violations == ()
    (seen,) = muted.seen
    return seen


@pytest.mark.parametrize("restarted", [1, 2])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", SEEDS)
def test_restarted_brokers_serve_beside_a_mute_controller(
    monkeypatch: pytest.MonkeyPatch, seed: int, store: str, restarted: int
) -> None:
    seen = run(monkeypatch, seed, store, restarted)
    assert seen.served_s < SERVED_WITHIN_S, seen
    assert len(seen.successors) == 1, "one broker takes the term"
    assert not seen.last_is_former, "and keeps it"
