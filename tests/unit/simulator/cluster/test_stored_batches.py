"""A batch that a follower must not store is noticed, and a copy of the leader's is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from simulator.checkers.laws import Law
from simulator.cluster import observer
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.stored_batches import BatchRun, _Read
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


def run_with(
    monkeypatch: pytest.MonkeyPatch, examine: Callable[[ClusterWorld], object]
) -> ClusterWorld:
    """Run a sound world, and call `examine` when clients have produced to it."""
    world = ClusterWorld(1, ClusterPlan(1.0, frozenset({"plain"}), frozenset(), store="file"))

    async def wait() -> None:
        await asyncio.sleep(3.0)
        examine(world)

    monkeypatch.setattr(world.nemesis, "run", wait)
    assert run_world(world).broken == set()
    return world


def laws_broken_by_copying(world: ClusterWorld, *, epoch: int = -1) -> set[Law]:
    """Return the laws that the followers of one partition break if they copy it now.

    epoch: of the last batch before these.
    """
    stored, key = world.observer.replicas.stored, world.brokers.leaders()["plain", 0].key
    for host in world.hosts:
        assert host.server is not None
        partition = host.server.broker.partitions.get(*key)
        assert partition is not None
        if partition.role.is_leader:
            continue
        run = BatchRun(host.node_id, host.starts)
        read = stored._read[run, key] = _Read()
        read.is_begun, read.epoch = True, epoch
        stored.check(run, [partition], host.disk)
        assert read.batches
    broken = set(world.findings.broken)
    world.findings.broken.clear()
    return broken


def test_copies_of_the_leader_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(world: ClusterWorld) -> None:
        assert laws_broken_by_copying(world) == set()
        # The leader was not checked yet in its epoch.
        world.observer.replicas.stored._led.clear()
        assert laws_broken_by_copying(world) == set()

    run_with(monkeypatch, examine)


@pytest.mark.long
def test_a_fall_of_the_epoch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(world: ClusterWorld) -> None:
        assert laws_broken_by_copying(world, epoch=99) == {Law.EPOCHS_IN_ORDER}

    run_with(monkeypatch, examine)


@pytest.mark.long
def test_a_batch_that_the_leader_lacks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(world: ClusterWorld) -> None:
        leader = world.brokers.leaders()["plain", 0]
        stored, led = world.observer.replicas.stored, (leader.key, leader.leader_epoch)
        batches = dict(stored._led[led])
        stored._led[led].clear()
        assert laws_broken_by_copying(world) == {Law.COPIED}
        del stored._led[led]
        assert laws_broken_by_copying(world) == {Law.COPIED}
        stored._led[led] = batches

    run_with(monkeypatch, examine)


def test_the_batches_of_a_broker_with_many_partitions_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader that had more of them than its follower was read too late, or never."""
    monkeypatch.setattr(observer, "_MANY", 0)
    world = run_with(monkeypatch, lambda world: None)
    counts = world.findings.counts
    assert counts["stored batches"] >= counts["replicated batches"] > 0
