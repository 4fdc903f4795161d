"""A controller that most brokers miss is replaced before its session ends, and no other one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from lakelog.replica.partition import Partition
from lakelog.server.app import Server
from lakelog.server.controller.succession import Succession
from lakelog.server.handlers import cluster
from repetitions import first_of
from simulator.brokers.host import BrokerHost
from simulator.cluster.ensemble import STORE
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import SESSION_S, ClusterPlan
from simulator.cluster.pulse import TOPIC as PULSE
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world

HOLD_S = 2 * SESSION_S
OTHERS_S_MAX = 2.0 + 0.4
"""The longest time without a commit of a leader that the fault does not touch. The pulse writes
every 0.4 s on average."""
SEEDS = (1, 2, 3)
Fault = Callable[[ClusterNemesis, BrokerHost], Callable[[], None]]
"""Does something to the controller; returns how to end that."""


class Seen(NamedTuple):
    """Observations at the other brokers during a fault of the controller."""

    waits: list[float]
    """The longest times in seconds without a commit, by partition that another broker led."""
    moved_s: float | None
    """When the term had another holder."""
    epochs: int
    """New terms during the fault, and for a session after it."""


class Troubled:
    """Lets a fault act on the controller once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fault: Fault, hold_s: float) -> None:
        self._fault, self._hold_s = fault, hold_s
        self.seen: list[Seen] = []
        monkeypatch.setattr(ClusterNemesis, "_cut_store", lambda nemesis: self._run(nemesis))

    async def _run(self, nemesis: ClusterNemesis) -> None:
        await asyncio.sleep(SESSION_S)  # a term is left alone for its first session
        running = {each.node_id: each for each in nemesis._hosts if each.server is not None}
        former = nemesis._controller()
        if self.seen or former is None or len(running) < 3 or nemesis._cluster.image.fenced:
            return
        servers = [each.server for each in running.values() if each is not former and each.server]
        led = [partition for server in servers for partition in pulsing(server)]
        metadata = servers[0].broker.metadata
        begun, epoch = nemesis._simulator.loop.time(), metadata.term.epoch
        mend = self._fault(nemesis, former)
        waits, moved_s = [0.0] * len(led), None
        since = [(begun, each.watermark.offset) for each in led]
        while (now := nemesis._simulator.loop.time()) < begun + self._hold_s:
            for at, partition in enumerate(led):
                waits[at] = max(waits[at], now - since[at][0])
                if partition.watermark.offset != since[at][1]:
                    since[at] = now, partition.watermark.offset
            if moved_s is None and metadata.controller_id != former.node_id:
                moved_s = now - begun
            await asyncio.sleep(0.01)
        mend()
        await asyncio.sleep(SESSION_S)
        self.seen.append(Seen(waits, moved_s, metadata.term.epoch - epoch))


def pulsing(server: Server) -> Iterator[Partition]:
    return (
        each for each in server.broker.partitions if each.topic == PULSE and each.role.is_leader
    )


def cut_off(nemesis: ClusterNemesis, controller: BrokerHost) -> Callable[[], None]:
    others = [each.name for each in nemesis._hosts if each is not controller]
    return cut(nemesis, controller, *others, STORE)


def stop(nemesis: ClusterNemesis, controller: BrokerHost) -> Callable[[], None]:
    controller.pause()
    return controller.resume


def cut_from_one(nemesis: ClusterNemesis, controller: BrokerHost) -> Callable[[], None]:
    other = next(each.name for each in nemesis._hosts if each is not controller)
    return cut(nemesis, controller, other)


def cut(nemesis: ClusterNemesis, controller: BrokerHost, *others: str) -> Callable[[], None]:
    ways = [way for other in others for way in ((controller.name, other), (other, controller.name))]
    for way in ways:
        nemesis._network.cut(*way)
    return lambda: nemesis._network.mend(ways)


def run(monkeypatch: pytest.MonkeyPatch, seed: int, fault: Fault, hold_s: float = HOLD_S) -> Seen:
    troubled = Troubled(monkeypatch, fault, hold_s)
    plan = ClusterPlan(6.0, frozenset({"plain", "idempotent"}), frozenset({"cut store"}))
    assert run_world(ClusterWorld(seed, plan)).violations == ()
    (seen,) = troubled.seen
    return seen


@pytest.mark.parametrize("fault", [cut_off, stop])
@pytest.mark.parametrize("seed", first_of(SEEDS))
def test_leaders_do_not_wait_for_the_session_of_the_controller(
    monkeypatch: pytest.MonkeyPatch, seed: int, fault: Fault
) -> None:
    seen = run(monkeypatch, seed, fault)
    assert seen.moved_s is not None and seen.moved_s < SESSION_S / 2, seen
    assert seen.waits and max(seen.waits) <= OTHERS_S_MAX, seen
    assert seen.epochs == 1, "the former controller does not take the term back"


@pytest.mark.parametrize("fault", [cut_off, stop])
def test_without_a_vote_they_would_wait(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    monkeypatch.setattr(Succession, "note_silence", lambda succession: None)
    seen = run(monkeypatch, SEEDS[0], fault)
    assert max(seen.waits) > OTHERS_S_MAX, seen


def test_brokers_of_an_older_version_wait_for_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_misses", lambda broker, controller_id: False)
    seen = run(monkeypatch, SEEDS[0], stop)
    assert seen.moved_s is not None and seen.moved_s > SESSION_S / 2
    assert seen.epochs == 1


@pytest.mark.parametrize("seed", first_of(SEEDS))
def test_a_cut_between_the_controller_and_one_broker_moves_nothing(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    seen = run(monkeypatch, seed, cut_from_one)
    assert (seen.moved_s, seen.epochs) == (None, 0)


@pytest.mark.parametrize("fault", [cut_off, stop])
@pytest.mark.parametrize("seed", first_of(SEEDS))
def test_a_controller_that_stalls_for_a_moment_keeps_the_term(
    monkeypatch: pytest.MonkeyPatch, seed: int, fault: Fault
) -> None:
    seen = run(monkeypatch, seed, fault, SESSION_S / 8)
    assert (seen.moved_s, seen.epochs) == (None, 0)
