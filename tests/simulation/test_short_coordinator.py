"""A coordinator with too few in-sync replicas returns committed offsets."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.coordinator.group.coordinator import GROUP_TOPIC, GroupCoordinator
from simulator.brokers.host import BrokerHost
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import SESSION_S, ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world
from waiting import until

SEEDS = (1, 2)
LOAD_S = SESSION_S + 2.0


async def follower_with_records(nemesis: ClusterNemesis) -> tuple[BrokerHost, int] | None:
    """Return a broker with records of groups that it does not know to be committed, if any."""
    loop = nemesis._simulator.loop
    until_s = loop.time() + LOAD_S
    while loop.time() < until_s and len(nemesis._cluster.image.fenced) == 0:
        for host in nemesis._hosts:
            for partition in host.server.broker.partitions if host.server is not None else ():
                has_more = partition.watermark.offset < partition.log.log_end_offset
                if partition.topic == GROUP_TOPIC and has_more and not partition.serves:
                    return host, partition.index
        await asyncio.sleep(0.000_1)
    return None


def is_loaded(groups: GroupCoordinator, index: int) -> bool:
    context = groups._host._contexts.get(index)
    return context is not None and context.active


def loads(monkeypatch: pytest.MonkeyPatch, seed: int) -> list[bool]:
    """Leave a coordinator alone with uncommitted records; return whether it was loaded, if so."""
    found: list[bool] = []

    async def leave_alone(nemesis: ClusterNemesis) -> None:
        if found:
            return
        last = await follower_with_records(nemesis)
        if last is None:
            return
        host, index = last
        for other in nemesis._hosts:
            if other is not host:
                other.kill()
        assert host.server is not None
        broker = host.server.broker

        def leads() -> bool:
            state = nemesis._cluster.image.partition(GROUP_TOPIC, index)
            return state is not None and state.leader == host.node_id

        await until(leads, LOAD_S)
        partition = broker.partitions.leader(GROUP_TOPIC, index)
        assert partition.watermark.is_short
        assert partition.watermark.offset < partition.log.log_end_offset
        found.append(await until(lambda: is_loaded(broker.groups, index), LOAD_S))
        others = [other for other in nemesis._hosts if other is not host]
        await asyncio.gather(*(other.bring_back() for other in others))

    monkeypatch.setattr(ClusterNemesis, "_cut_store", leave_alone)
    plan = ClusterPlan(10.0, frozenset({"classic group", "plain"}), frozenset({"cut store"}))
    plan.settings["min.insync.replicas"] = "2"
    assert run_world(ClusterWorld(seed, plan)).violations == ()
    return found


def test_offsets_can_be_fetched_while_too_few_replicas_are_in_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [is_so for seed in SEEDS for is_so in loads(monkeypatch, seed)]
    assert found == [True, True], "each had records that were not committed"
