"""The observer of a broker: lost records are excused only where the broker promised nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulator import World
from simulator.brokers.observer import BrokerObserver
from simulator.checkers.laws import Law
from simulator.checkers.partition_watcher import Cut
from simulator.plan import DURABLE, Plan

PLACE = ("orders", 0)


class Cuts:
    """A watcher that finds one log shorter after a start."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut

    def compare(self, partitions: object, *, power: bool) -> dict[tuple[str, int], Cut]:
        return {PLACE: self._cut}


class NoBits:
    def on_started(self) -> None: ...


def started(
    plan: Plan, cut: Cut, before: Callable[[World], object] = lambda world: None
) -> tuple[World, list[str]]:
    """Have a broker start with one acknowledged record behind the end of its log."""
    world = World(1, plan)
    world.records.will_send(PLACE, [b"a", b"b"])
    world.records.acknowledged(PLACE, 0, [b"a", b"b"])
    calls: list[str] = []
    watcher: Any = Cuts(cut)
    observer = BrokerObserver(
        world.simulator,
        plan,
        world.findings,
        world.conditions,
        world,
        watcher,
        NoBits(),
        on_cut=lambda: calls.append("reset"),
        owns=lambda host, group: True,
    )
    host: Any = world.brokers.hosts[0]
    host.server = ServerWithoutPartitions()
    observer.on_started(host)
    host.server = None
    world.simulator.loop.close()
    return world, calls


class ServerWithoutPartitions:
    class broker:  # noqa: N801 - an attribute of a server
        partitions: tuple[()] = ()


def test_records_above_the_recovery_point_are_excused() -> None:
    world, calls = started(Plan(), Cut(1, None, allowed=True))
    assert world.findings.violations == []
    assert world.records.partition(PLACE).values == {0: b"a"}
    assert world.conditions.cut_at == 0.0
    assert calls == ["reset"], "responses of the dead process no longer arrive"


def test_other_records_are_not() -> None:
    world, calls = started(Plan(), Cut(1, None, allowed=False))
    assert world.records.partition(PLACE).values == {0: b"a", 1: b"b"}
    assert world.conditions.cut_at == -1.0
    assert calls == []


@pytest.mark.parametrize(("damaged_at", "broken"), [(None, {Law.DURABLE}), (1, set())])
def test_where_every_record_is_synced_only_damage_excuses_a_loss(
    damaged_at: int | None, broken: set[Law]
) -> None:
    plan = Plan()
    plan.settings.update([DURABLE[0]])
    world, _ = started(plan, Cut(1, damaged_at, allowed=True))
    assert world.findings.broken == broken


@pytest.mark.parametrize(("faults", "broken"), [((), {Law.STARTS}), (("disk full",), set())])
def test_a_broker_may_refuse_to_start_on_a_failing_disk_only(
    faults: tuple[str, ...], broken: set[Law]
) -> None:
    world = World(1, Plan(faults=frozenset(faults)))
    host = world.brokers.hosts[0]
    host._observer.on_start_refused(host, RuntimeError("no"))
    assert world.findings.broken == broken
    world.simulator.loop.close()
