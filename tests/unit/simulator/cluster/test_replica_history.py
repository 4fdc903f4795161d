"""Each broken invariant of replicas is noticed."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.replica.partition import Partition
from simulator.checkers.laws import Law
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


def test_broken_invariants_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClusterWorld(1, ClusterPlan(1.0, frozenset({"plain"}), frozenset(), store="file"))

    def laws_broken_by_now() -> set[Law]:
        world.observer._seen.clear()
        for host in world.hosts:
            world.observer.on_step(host)
            world.observer.compare(host)
        broken = set(world.findings.broken)
        world.findings.broken.clear()
        return broken

    async def plant() -> None:
        await asyncio.sleep(3.0)
        assert laws_broken_by_now() == set()
        leader = world.brokers.leaders()["plain", 0]
        known = world.records.partition(("plain", 0))
        known.end += 1000
        assert laws_broken_by_now() == {Law.LEADER_COMPLETE}
        known.end -= 1000
        replicas = world.observer.replicas
        replicas.committed[leader.key] += 1000
        assert laws_broken_by_now() == {Law.IN_SYNC}
        replicas.committed[leader.key] -= 1000
        replicas._compared.clear()
        batches = replicas._batches[leader.key]
        batches[0], before = (0, 0, 0), batches[0]
        assert laws_broken_by_now() == {Law.SAME_PREFIX}
        batches[0] = before
        leader.watermark.offset -= 1
        assert Law.WATERMARK_KEPT in laws_broken_by_now()
        leader.watermark.offset += 1
        other = _replica_elsewhere(world, leader)
        role, other.role = other.role, leader.role
        assert Law.ONE_LEADER in laws_broken_by_now()
        other.role = role

    monkeypatch.setattr(world.nemesis, "run", plant)
    assert Law.CLIENTS_LIVE not in run_world(world).broken


def _replica_elsewhere(world: ClusterWorld, leader: Partition) -> Partition:
    for host in world.hosts:
        assert host.server is not None
        found = host.server.broker.partitions.get(*leader.key)
        if found is not None and found is not leader:
            return found
    raise AssertionError("the partition has followers")
