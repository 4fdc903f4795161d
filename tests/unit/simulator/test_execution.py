"""Runs of whole worlds: outcomes that fail although no law about records is broken."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from simulator import Plan, World, WorldOutcome, run
from simulator.checkers.laws import Law
from simulator.clients.producers.idempotent import PlainProducer

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
    result = run(World(1, SMALL))
    assert Law.RESTS in result.broken
    assert "plain0" in result.violations[0]


def test_a_client_that_fails_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: PlainProducer) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(PlainProducer, "run", fail)
    assert Law.CLIENTS_LIVE in run(World(1, SMALL)).broken


@pytest.mark.long
def test_three_brokers_in_one_world() -> None:
    """Each has clients of its own, and is stopped and started."""
    world = World(2, Plan(8.0, frozenset({"idempotent"}), frozenset({"kill", "stop"})), brokers=3)
    assert run(world).violations == ()
    for host in world.brokers.hosts:
        topic = f"orders{host.suffix}"
        sent = [value for value in world.records.sent.values() if value.place[0] == topic]
        assert any(value.acked >= 0 for value in sent)


def test_nothing_keeps_a_world_after_its_run() -> None:
    """The metadata of a killed broker would: SQLite has pointers into its open files."""
    world = World(1, SMALL)
    run(world)
    kept = weakref.ref(world)
    del world
    gc.collect()
    assert kept() is None
