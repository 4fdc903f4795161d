"""A batch that a follower must not store is noticed."""

from __future__ import annotations

import asyncio

import pytest

from simulator.checkers.laws import Law
from simulator.cluster.execution import run_cluster
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.stored_batches import Run, _Read
from simulator.cluster.world import ClusterWorld


def test_batches_of_another_leader_or_epoch_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClusterWorld(1, ClusterPlan(1.0, frozenset({"plain"}), frozenset(), store="file"))
    stored = world.observer.replicas.stored
    stored.judges_copies = True

    def laws_broken_by_reading(*, is_begun: bool, epoch: int = -1) -> set[Law]:
        """Return the laws that the replicas of one partition break if they are read again."""
        key = world.brokers.leaders()["plain", 0].key
        for host in world.hosts:
            assert host.server is not None
            run = Run(host.node_id, host.starts)
            partition = host.server.broker.partitions.get(*key)
            assert partition is not None
            read = stored._read[run, key] = _Read()
            read.is_begun, read.epoch = is_begun and not partition.role.is_leader, epoch
            stored.check(run, partition, host.disk)
        broken = set(world.findings.broken)
        world.findings.broken.clear()
        return broken

    async def plant() -> None:
        await asyncio.sleep(3.0)
        leader = world.brokers.leaders()["plain", 0]
        led = leader.key, leader.leader_epoch
        assert laws_broken_by_reading(is_begun=True) == set()
        assert laws_broken_by_reading(is_begun=False, epoch=99) == {Law.EPOCHS_IN_ORDER}
        del stored._led[led]
        followers = [host for host in world.hosts if host.node_id != _leader_id(world)]
        run = Run(followers[0].node_id, followers[0].starts)
        assert followers[0].server is not None
        copy = followers[0].server.broker.partitions.get(*leader.key)
        assert copy is not None
        read = stored._read[run, leader.key] = _Read()
        read.is_begun = True
        stored.check(run, copy, followers[0].disk)
        assert set(world.findings.broken) == {Law.COPIED}
        world.findings.broken.clear()

    monkeypatch.setattr(world.nemesis, "run", plant)
    assert Law.CLIENTS_LIVE not in run_cluster(world).broken


def _leader_id(world: ClusterWorld) -> int:
    topic = world.image.topic("plain")
    assert topic is not None
    return topic.partitions[0].leader
