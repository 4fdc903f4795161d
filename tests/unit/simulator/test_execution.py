"""Runs of whole worlds: outcomes that fail although no law about records is broken."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from simulator import Plan, World, WorldOutcome, run_world
from simulator.checkers.laws import Law
from simulator.clients.producers.idempotent import PlainProducer
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from waiting import until

SMALL = Plan(2.0, frozenset({"plain"}), frozenset({"stop"}))


def outcome(faults: dict[str, int], acked: int) -> WorldOutcome:
    return WorldOutcome(1, (), frozenset(), "", 0, 0.0, faults, {"acked": acked})


@pytest.mark.parametrize(
    ("faults", "acked", "is_thin"),
    [({"kill": 1}, 10, False), ({"kill": 1}, 9, True), ({"reset": 5}, 100, True)],
)
def test_a_run_without_deaths_or_acknowledgements_is_thin(
    faults: dict[str, int], acked: int, is_thin: bool
) -> None:
    assert outcome(faults, acked).is_thin is is_thin


def test_a_client_that_never_finishes_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait_for_ever(self: PlainProducer) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(PlainProducer, "run", wait_for_ever)
    result = run_world(World(1, SMALL))
    assert Law.RESTS in result.broken
    assert "plain0" in result.violations[0]


def test_a_client_that_fails_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: PlainProducer) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(PlainProducer, "run", fail)
    assert Law.CLIENTS_LIVE in run_world(World(1, SMALL)).broken


@pytest.mark.long
def test_three_brokers_in_one_world() -> None:
    """Each has clients of its own, and is stopped and started."""
    world = World(2, Plan(8.0, frozenset({"idempotent"}), frozenset({"kill", "stop"})), brokers=3)
    assert run_world(world).violations == ()
    for host in world.brokers.hosts:
        topic = f"orders{host.suffix}"
        sent = [value for value in world.records.sent.values() if value.topic_partition[0] == topic]
        assert any(value.acked >= 0 for value in sent)


def test_nothing_keeps_a_world_after_its_run() -> None:
    """The metadata of a killed broker would: SQLite has pointers into its open files."""
    world = World(1, SMALL)
    run_world(world)
    kept = weakref.ref(world)
    del world
    gc.collect()
    assert kept() is None


@pytest.mark.long
def test_each_broker_of_a_cluster_is_restarted_for_the_final_reads() -> None:
    world = ClusterWorld(1, ClusterPlan(1.0, frozenset({"plain"}), frozenset()))
    assert run_world(world).violations == ()
    assert [host.starts for host in world.hosts] == [2, 2, 2]


def test_a_broker_that_stays_down_is_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def kill(self: ClusterNemesis) -> None:
        self._hosts[0].kill()

    monkeypatch.setattr(ClusterNemesis, "run", kill)
    world = ClusterWorld(1, ClusterPlan(1.0, frozenset({"plain"}), frozenset()))
    outcome = run_world(world)
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
    assert run_world(world).violations == ()
    assert world.hosts[0].starts == 3
