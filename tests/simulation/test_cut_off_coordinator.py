"""A coordinator that is cut off one way stops answering when its cluster elects another one."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GroupCoordinator
from lakelog.testing.simulation.cluster.ensemble import STORE
from lakelog.testing.simulation.cluster.execution import run_cluster
from lakelog.testing.simulation.cluster.nemesis import ClusterNemesis
from lakelog.testing.simulation.cluster.plan import SESSION_S, ClusterPlan
from lakelog.testing.simulation.cluster.world import ClusterWorld


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


@pytest.mark.parametrize("seed", [1, 2, 3])
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
    assert run_cluster(ClusterWorld(seed, plan)).violations == ()
    stale = [each for each in found if each.before == each.after != each.newest]
    assert stale, f"the coordinator learned of its successor: {found}"
    assert not any(each.answers for each in stale)


def epoch_of(groups: GroupCoordinator) -> int | None:
    return groups.leader_epoch(0)
