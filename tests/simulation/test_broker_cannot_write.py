"""A broker whose disk is full or fails, or that is cut off: others write its partitions within
seconds, and it is not ready.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.failover import NO_LEADER, PartitionImage
from lakelog.metadata.image import MetadataImage
from repetitions import first_of
from simulation.fetching import fetch_code
from simulator.brokers.host import BrokerHost
from simulator.cluster.ensemble import STORE
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world
from waiting import EventTimeoutError, until

HANDOVER_S = 5.0
IDLE_S = 10.0
"""A broker that writes nothing notices by a trial every few seconds."""
BACK_S = 40.0
Scene = Callable[[ClusterNemesis], Awaitable[None]]


def partitions(image: MetadataImage, topic: str = "orders") -> list[PartitionImage]:
    """Return the partitions in the order of their numbers, which an image does not keep."""
    found = image.topic(topic)
    return [] if found is None else [partition for _, partition in sorted(found.partitions.items())]


def has_left(nemesis: ClusterNemesis, host: BrokerHost) -> bool:
    """Return whether the broker leads nothing and is in no ISR."""
    return all(
        host.node_id not in (each.leader, *each.isr)
        for topic in nemesis._cluster.image.topics
        for each in topic.partitions.values()
    )


def is_ready(host: BrokerHost) -> bool:
    """Return what `/readyz` answers."""
    assert host.server is not None
    return all(check.passes for check in host.server.monitoring.checks())


def is_back(nemesis: ClusterNemesis, host: BrokerHost) -> bool:
    return all(
        host.node_id in each.isr
        for topic in nemesis._cluster.image.topics
        for each in topic.partitions.values()
    )


def leader(nemesis: ClusterNemesis) -> BrokerHost:
    return nemesis._hosts[partitions(nemesis._cluster.image)[0].leader - 1]


def in_a_world(
    monkeypatch: pytest.MonkeyPatch, seed: int, scene: Scene, workload: str = "idempotent"
) -> None:
    """Run a world in which `scene` happens once all replicas are in sync."""
    calls: list[ClusterNemesis] = []

    async def once(nemesis: ClusterNemesis) -> None:
        if calls:
            return
        calls.append(nemesis)
        host = nemesis._hosts[0]
        await until(
            lambda: bool(partitions(nemesis._cluster.image)) and is_back(nemesis, host), 30.0
        )
        await scene(nemesis)

    monkeypatch.setattr(ClusterNemesis, "_cut_store", once)
    plan = ClusterPlan(20.0, frozenset({workload}), frozenset({"cut store"}))
    assert run_world(ClusterWorld(seed, plan)).violations == ()
    assert calls


@pytest.mark.parametrize("seed", first_of([1, 2]))
def test_a_leader_with_a_full_disk_hands_over_and_comes_back(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    async def fill(nemesis: ClusterNemesis) -> None:
        host = leader(nemesis)
        host.disk.capacity = host.disk.used
        await until(lambda: has_left(nemesis, host), HANDOVER_S)
        assert not is_ready(host)
        host.disk.capacity = None
        await until(lambda: is_back(nemesis, host), BACK_S)
        await until(lambda: is_ready(host), IDLE_S)

    in_a_world(monkeypatch, seed, fill)


@pytest.mark.parametrize("has_peers", [True, False])
def test_a_leader_that_cannot_learn_that_it_is_fenced_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, has_peers: bool
) -> None:
    async def cut_off(nemesis: ClusterNemesis) -> None:
        host, network = leader(nemesis), nemesis._network
        others = [] if has_peers else [each.name for each in nemesis._hosts if each is not host]
        ways = [(host.name, name) for name in (STORE, *others)]
        ways += [(name, here) for here, name in ways]
        for way in ways:
            network.cut(*way)
        await until(lambda: not is_ready(host), HANDOVER_S)
        await until(lambda: has_left(nemesis, host), HANDOVER_S)
        assert not is_ready(host)
        network.mend(ways)
        await until(lambda: is_back(nemesis, host), BACK_S)
        await until(lambda: is_ready(host), IDLE_S)

    in_a_world(monkeypatch, 1, cut_off)


def test_brokers_that_are_all_without_the_store_stay_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """They confirm each other, and nothing can be elected."""

    async def cut_off(nemesis: ClusterNemesis) -> None:
        names = [host.name for host in nemesis._hosts]
        ways = [way for name in names for way in ((name, STORE), (STORE, name))]
        for way in ways:
            nemesis._network.cut(*way)
        with pytest.raises(EventTimeoutError):
            await until(lambda: not all(map(is_ready, nemesis._hosts)), IDLE_S)
        nemesis._network.mend(ways)

    in_a_world(monkeypatch, 1, cut_off)


@pytest.mark.parametrize("seed", first_of([1, 2]))
def test_a_leader_whose_device_fails_hands_over_until_it_starts_again(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    async def fail(nemesis: ClusterNemesis) -> None:
        host = leader(nemesis)
        host.disk.fail("write", errno.EIO, suffix=".log", times=1000)
        await until(lambda: has_left(nemesis, host), HANDOVER_S)
        assert not is_ready(host)
        host.disk.forget_faults()
        await asyncio.sleep(BACK_S)
        assert has_left(nemesis, host), "the device may have dropped pages"
        assert not is_ready(host)
        host.kill()
        await host.bring_back()
        await until(lambda: is_back(nemesis, host), BACK_S)
        await until(lambda: is_ready(host), IDLE_S)

    in_a_world(monkeypatch, seed, fail)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_idle_follower_that_cannot_write_leaves_the_isr(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    async def fail(nemesis: ClusterNemesis) -> None:
        host = next(each for each in nemesis._hosts if each is not leader(nemesis))
        host.disk.fail("write", code, suffix=".probe", times=100_000)
        await until(lambda: has_left(nemesis, host), IDLE_S)
        assert not is_ready(host)
        host.disk.forget_faults()
        host.kill()
        await host.bring_back()
        await until(lambda: is_back(nemesis, host), BACK_S)
        await until(lambda: is_ready(host), IDLE_S)

    in_a_world(monkeypatch, 1, fail)


def test_brokers_that_are_all_full_keep_their_records_and_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fill(nemesis: ClusterNemesis) -> None:
        for host in nemesis._hosts:
            host.disk.capacity = host.disk.used
        await asyncio.sleep(IDLE_S)
        for host in nemesis._hosts:
            host.disk.capacity = None

        def are_back() -> bool:
            return all(is_back(nemesis, host) for host in nemesis._hosts)

        await until(are_back, BACK_S)

    in_a_world(monkeypatch, 1, fill)


def test_a_leader_that_cannot_read_its_log_hands_the_partition_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(nemesis: ClusterNemesis) -> None:
        host = leader(nemesis)
        host.disk.fail("read", errno.EIO, suffix=".log", times=100_000)
        await fetch_code(nemesis, host, ("orders", 0))

        def has_handed_over() -> bool:
            state = partitions(nemesis._cluster.image)[0]
            return host.node_id not in (state.leader, *state.isr)

        await until(has_handed_over, HANDOVER_S)
        host.disk.forget_faults()
        host.kill()
        await host.bring_back()
        await until(lambda: is_back(nemesis, host), BACK_S)

    in_a_world(monkeypatch, 1, fail)


def test_a_partition_whose_only_replica_in_sync_cannot_be_read_has_no_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(nemesis: ClusterNemesis) -> None:
        host = leader(nemesis)
        others = [each for each in nemesis._hosts if each is not host]
        for other in others:
            other.kill()

        def state() -> PartitionImage:
            return partitions(nemesis._cluster.image)[0]

        assert await until(lambda: state().isr == (host.node_id,), HANDOVER_S)
        await host.stop()
        await host.bring_back()  # it has not read its records yet
        assert await until(lambda: state().leader == host.node_id, BACK_S)
        host.disk.fail("read", errno.EIO, suffix=".log", times=100_000)
        assert await fetch_code(nemesis, host, ("orders", 0)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert await until(lambda: state().leader == NO_LEADER, HANDOVER_S)
        host.disk.forget_faults()
        await asyncio.sleep(IDLE_S)
        assert state().leader == NO_LEADER
        host.kill()
        await asyncio.gather(*(each.bring_back() for each in nemesis._hosts))
        assert await until(lambda: is_back(nemesis, host), BACK_S)

    in_a_world(monkeypatch, 1, fail)
