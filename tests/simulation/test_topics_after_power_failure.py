"""Topics that are created after a power failure of all brokers, before their sessions end."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.topics import NewTopic
from lakelog.metadata.image import MetadataImage
from simulator.brokers.host import BrokerHost
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world
from waiting import until

LATE = "late"
LEADERS_S = 30.0


async def create_late(host: BrokerHost, replicas: int) -> None:
    """Create a topic with three partitions at the first broker that is back."""

    async def is_created() -> bool:
        assert host.server is not None
        (result,) = await host.server.broker.topics.create([NewTopic(LATE, 3, replicas)])
        return not result.error

    await until(is_created, passing=lambda error: isinstance(error, KafkaError), every_s=0.01)


def leaderless(image: MetadataImage) -> list[int]:
    topic = image.topic(LATE)
    assert topic is not None
    return [number for number, each in topic.partitions.items() if each.leader < 0]


@pytest.mark.parametrize(("first", "replicas"), [(0, 2), (1, 3)])
def test_their_partitions_have_leaders_when_all_brokers_are_back(
    monkeypatch: pytest.MonkeyPatch, first: int, replicas: int
) -> None:
    left: list[int] = []
    created: list[str] = []

    async def fail(self: ClusterNemesis) -> None:
        if created:
            return
        created.append(LATE)
        for host in self._hosts:
            self._faults.cut_power(host)
        self._cluster.crash_shared()
        self._network.down.clear()
        early = self._hosts[first]
        await early.bring_back()
        await create_late(early, replicas)
        await asyncio.gather(*(host.bring_back() for host in self._hosts))
        await asyncio.sleep(LEADERS_S)
        left.extend(leaderless(self._cluster.image))

    monkeypatch.setattr(ClusterNemesis, "_power_of_all", fail)
    plan = ClusterPlan(4.0, frozenset({"idempotent"}), frozenset({"power of all"}))
    plan.settings["log.durability"] = "fsync"
    assert run_world(ClusterWorld(1, plan)).violations == ()
    assert created
    assert left == []
