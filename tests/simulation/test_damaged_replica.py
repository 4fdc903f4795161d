"""A replica whose stored records are damaged: another one leads, and it copies the log again."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.failover import NO_LEADER, PartitionImage
from simulation.fetching import fetch_code
from simulator.brokers.host import DATA, BrokerHost
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world
from waiting import until

LOG = DATA / "orders-0" / "00000000000000000000.log"
HANDOVER_S = 5.0
COPY_S = 40.0


def state(nemesis: ClusterNemesis) -> PartitionImage | None:
    return nemesis._cluster.image.partition("orders", 0)


def has_left(nemesis: ClusterNemesis, host: BrokerHost) -> bool:
    found = state(nemesis)
    return found is not None and host.node_id not in (*found.isr, *found.elr)


def leads(nemesis: ClusterNemesis, host: BrokerHost) -> bool:
    partition = host.server and host.server.broker.partitions.get("orders", 0)
    return bool(partition and partition.serves)


def is_whole(nemesis: ClusterNemesis) -> bool:
    found = state(nemesis)
    return found is not None and len(found.isr) == 3


async def damage(nemesis: ClusterNemesis, host: BrokerHost) -> None:
    """Flip a bit of stored records while the broker is down in order, and fetch them."""
    await host.stop()
    host.disk.flip(LOG, 8 * 70)
    await host.bring_back()
    assert await until(lambda: is_whole(nemesis) and leads(nemesis, host), COPY_S)
    assert await fetch_code(nemesis, host, ("orders", 0)) is ErrorCode.CORRUPT_MESSAGE


def test_a_damaged_leader_resigns_and_copies_the_log_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[ClusterNemesis] = []

    async def once(nemesis: ClusterNemesis) -> None:
        if calls:
            return
        calls.append(nemesis)
        await until(lambda: is_whole(nemesis), 30.0)
        await asyncio.sleep(2.0)
        first = state(nemesis)
        assert first is not None
        host = nemesis._hosts[first.replicas[0] - 1]  # which leads again after its return
        await damage(nemesis, host)
        before = state(nemesis)
        assert before is not None
        await until(lambda: has_left(nemesis, host), HANDOVER_S)
        after = state(nemesis)
        assert after is not None
        assert after.leader not in (NO_LEADER, host.node_id)
        await until(lambda: is_whole(nemesis), COPY_S)
        assert host.server is not None
        partition = host.server.broker.partitions.get("orders", 0)
        assert partition is not None
        assert partition.failed_in is None

    monkeypatch.setattr(ClusterNemesis, "_cut_store", once)
    plan = ClusterPlan(20.0, frozenset({"idempotent"}), frozenset({"cut store"}))
    assert run_world(ClusterWorld(3, plan)).violations == ()
    assert calls
