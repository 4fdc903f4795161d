"""A coordinator that is cut off stops answering before its cluster elects another one."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GroupCoordinator
from lakelog.server.controller.lease_grants import LeaseGrants
from repetitions import first_of
from simulator.cluster.ensemble import STORE
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import SESSION_S, ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


class Seen(NamedTuple):
    """A coordinator after a cut: its leader epoch before and after, and the cluster's."""

    before: int | None
    after: int | None
    newest: int
    answers: bool


def answers(groups: GroupCoordinator) -> bool:
    try:
        groups._host.shard_of("any")
    except KafkaError as error:
        assert error.code is ErrorCode.NOT_COORDINATOR
        return False
    return True


@pytest.mark.parametrize("seed", first_of([1, 2, 3]))
def test_it_answers_no_more(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    found: list[Seen] = []

    async def cut_off(self: ClusterNemesis) -> None:
        """Lose all bytes from the coordinator to the store and to other brokers."""
        found_groups = {
            host.name: host.server.broker.groups for host in self._hosts if host.server is not None
        }
        name, groups = next(each for each in found_groups.items() if epoch_of(each[1]) is not None)
        before = epoch_of(groups)
        ways = [(name, other) for other in (STORE, *found_groups) if other != name]
        for way in ways:
            self._network.cut(*way)
        await asyncio.sleep(4 * SESSION_S)
        newest = max(epoch_of(each) or -1 for each in found_groups.values())
        found.append(Seen(before, epoch_of(groups), newest, answers(groups)))
        self._network.mend(ways)

    monkeypatch.setattr(ClusterNemesis, "_cut_store", cut_off)
    plan = ClusterPlan(6.0, frozenset({"classic group", "plain"}), frozenset({"cut store"}))
    plan.settings["offsets.topic.num.partitions"] = "1"
    assert run_world(ClusterWorld(seed, plan)).violations == ()
    stale = [each for each in found if each.before == each.after != each.newest]
    assert stale, f"the coordinator learned of its successor: {found}"
    assert not any(each.answers for each in stale)


def seconds_of_two(monkeypatch: pytest.MonkeyPatch, seed: int) -> tuple[float, bool]:
    """Cut a coordinator off from its store, and from its peers while their word counts.

    Return how long it answered beside its successor, and whether there was one.
    """
    stale_s: list[float] = []

    async def cut_off(self: ClusterNemesis) -> None:
        servers = {host.name: host.server for host in self._hosts if host.server is not None}
        all_groups = {name: server.broker.groups for name, server in servers.items()}
        name, groups = next(each for each in all_groups.items() if epoch_of(each[1]) is not None)
        metadata = servers[name].broker.metadata
        if stale_s or metadata.controller_id == int(name[-1]):
            return
        before, loop = epoch_of(groups) or 0, self._simulator.loop
        last = cut_at = loop.time()
        peers_at = cut_at + (0.8 + 0.2 * self._rng.random()) * SESSION_S
        to_peers = [way for other in servers if other != name for way in both(name, other)]
        ways = both(name, STORE)
        stale_s.append(0.0)
        while last < cut_at + 2.5 * SESSION_S:
            for way in ways:
                if not self._network.is_cut(*way):
                    self._network.cut(*way)
            await asyncio.sleep(0.01)
            newest = max(epoch_of(each) or -1 for each in all_groups.values())
            if newest > before == epoch_of(groups) and answers(groups):
                stale_s[-1] += loop.time() - last
            last = loop.time()
            if last >= peers_at:
                ways = both(name, STORE) + to_peers
        assert newest > before, "the cluster has elected a successor"
        self._network.mend(ways)

    monkeypatch.setattr(ClusterNemesis, "_cut_store", cut_off)
    plan = ClusterPlan(10.0, frozenset({"classic group", "plain"}), frozenset({"cut store"}))
    plan.settings["offsets.topic.num.partitions"] = "1"
    assert run_world(ClusterWorld(seed, plan)).violations == ()
    return sum(stale_s), bool(stale_s)


def both(here: str, there: str) -> list[tuple[str, str]]:
    return [(here, there), (there, here)]


SEEDS = (1, 2, 3, 5)


@pytest.mark.parametrize("seed", first_of(SEEDS))
def test_its_peers_elect_no_other_while_their_word_counts(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    assert seconds_of_two(monkeypatch, seed) == (0.0, True)


def test_without_their_lease_grants_two_coordinators_would_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LeaseGrants, "divide", lambda self, dead: (dict(dead), None))
    assert any(seconds_of_two(monkeypatch, seed)[0] > 0.0 for seed in SEEDS)


def epoch_of(groups: GroupCoordinator) -> int | None:
    return groups.leader_epoch(0)
