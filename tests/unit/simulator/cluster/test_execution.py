"""The phases of a run of a cluster."""

from __future__ import annotations

import pytest

from simulator.checkers.laws import Law
from simulator.cluster.execution import run_cluster
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from waiting import until


@pytest.mark.long
def test_each_broker_is_restarted_for_the_final_reads() -> None:
    world = ClusterWorld(1, ClusterPlan(1.0, frozenset({"plain"}), frozenset()))
    assert run_cluster(world).violations == ()
    assert [host.starts for host in world.hosts] == [2, 2, 2]


def test_a_broker_that_stays_down_is_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def kill(self: ClusterNemesis) -> None:
        self._hosts[0].kill()

    monkeypatch.setattr(ClusterNemesis, "run", kill)
    world = ClusterWorld(1, ClusterPlan(1.0, frozenset({"plain"}), frozenset()))
    outcome = run_cluster(world)
    assert outcome.violations == ()
    assert Law.RESTS not in outcome.broken
    assert world.hosts[0].starts == 3


@pytest.mark.long
def test_a_broker_that_was_unregistered_in_the_last_fault_is_brought_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends when it hears of that, after its pause."""
    world = ClusterWorld(
        1, ClusterPlan(1.0, frozenset({"reconfiguration"}), frozenset(), store="file")
    )

    async def pause_until_unregistered() -> None:
        host = world.hosts[0]
        host.pause()
        await until(lambda: host.node_id not in world.image.brokers, every_s=0.1)

    monkeypatch.setattr(world.nemesis, "run", pause_until_unregistered)
    assert run_cluster(world).violations == ()
    assert world.hosts[0].starts == 3
