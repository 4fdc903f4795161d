"""The parts of schedules: a broker is deposed by a sleep, or by a cut from the metadata store."""

from __future__ import annotations

import asyncio

import pytest

from simulator.cluster.plan import ClusterPlan
from simulator.cluster.scene import Scene, controls
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


@pytest.mark.parametrize("store", ["file", pytest.param("zookeeper", marks=pytest.mark.long)])
def test_a_deposed_broker_is_fenced_and_comes_back(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ClusterWorld(1, ClusterPlan(1.0, frozenset({"plain"}), frozenset(), store=store))
    fenced: list[bool] = []

    async def depose() -> None:
        nemesis = world.nemesis
        scene = Scene(
            world.simulator,
            world.network,
            world.hosts,
            nemesis._faults,
            nemesis._rng,
            lambda: False,
            lambda: world.image,
            has_ensemble=store == "zookeeper",
        )
        assert sum(map(controls, world.hosts)) == 1
        host = next(host for host in world.hosts if not controls(host))
        deposing = asyncio.ensure_future(scene._depose(host))

        def is_fenced() -> bool:
            return world.image.brokers[host.node_id].is_fenced

        await scene._wait_for(is_fenced, 30.0)
        fenced.append(is_fenced())
        await deposing

    with world.conditions.disturbing():
        monkeypatch.setattr(world.nemesis, "run", depose)
    assert run_world(world).violations == ()
    assert fenced == [True]
