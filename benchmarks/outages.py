"""Faults of a cluster under measurement: each begins, and ends when its context is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from damaged_log import Reader, damage
from scenes import TOPIC, Scene

from torture.hosts import CLIENTS, Cut

_DEAD_S = 3.0
"""From the death of brokers without which nothing can be acknowledged to their start."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A fault that has begun.

    Args:
        brokers: the node ids of the brokers that have it.
        since: the begin of the measurement, of the monotonic clock.
        lasts: whether it lasts a while. Otherwise it ends when acknowledgements are steady.
        partitions: the partitions that have it; by default, partitions that `brokers` lead.
        reader: of damaged records.
    """

    brokers: tuple[int, ...]
    since: float
    lasts: bool = True
    partitions: tuple[int, ...] = ()
    reader: Reader | None = None


@contextmanager
def _kill(scene: Scene, number: int) -> Iterator[Outage]:
    broker = scene.broker(number)
    since = time.monotonic()
    broker.kill()
    yield Outage((number,), since, lasts=False)
    broker.launch()


@contextmanager
def _kill_and_start(scene: Scene, numbers: list[int], at_first: int) -> Iterator[Outage]:
    """Kill brokers; the measurement begins when the first ones start again."""
    for number in numbers:
        scene.broker(number).kill()
    time.sleep(_DEAD_S)
    since = time.monotonic()
    for number in numbers[:at_first]:
        scene.broker(number).launch()
    yield Outage(tuple(numbers), since, lasts=False)
    for number in numbers[at_first:]:
        scene.broker(number).launch()


@contextmanager
def _pause(scene: Scene, number: int) -> Iterator[Outage]:
    pid = scene.broker(number).pid
    since = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield Outage((number,), since)
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def _cut(
    scene: Scene, number: int, others: Iterable[str], *, out: bool = True, into: bool = True
) -> Iterator[Outage]:
    host = scene.host(number)
    names = [name for name in others if name != host]
    cuts = [Cut(host, name) for name in names if out]
    cuts += [Cut(name, host) for name in names if into]
    since = time.monotonic()
    scene.hosts.cut(cuts)
    try:
        yield Outage((number,), since)
    finally:
        scene.hosts.heal(cuts)


@contextmanager
def _full_disk(scene: Scene, number: int) -> Iterator[Outage]:
    disk, broker = scene.disks[number], scene.broker(number)
    since = time.monotonic()
    disk.fill()
    try:
        yield Outage((number,), since)
    finally:
        disk.free_capacity()
    if broker.has_ended():
        broker.kill()
        broker.launch()


@contextmanager
def _damage(scene: Scene, number: int) -> Iterator[Outage]:
    """Damage a log while its broker is down in order; it leads again when the fault begins."""
    partition, broker = scene.led_by([number])[0], scene.broker(number)
    broker.stop()
    offset = damage(scene.log_folder(number, partition))
    broker.launch()
    scene.await_full()
    since = time.monotonic()
    with Reader(scene.cluster.bootstrap, TOPIC, partition, offset) as reader:
        yield Outage((number,), since, partitions=(partition,), reader=reader)


@contextmanager
def _store_away(scene: Scene) -> Iterator[Outage]:
    since = time.monotonic()
    scene.cluster.kill_store()
    yield Outage((), since)
    scene.cluster.start_store()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Args:
        text: a description, for the table.
        begin: returns the context of the fault.
        clusters: the clusters that can have it.
    """

    text: str
    begin: Callable[[Scene], AbstractContextManager[Outage]]
    clusters: tuple[str, ...] = ("zookeeper", "lakelog", "kafka")


_WITH_STORE = ("zookeeper", "kafka-apart")

KINDS = {
    "kill-leader": Kind("kill a leader", lambda scene: _kill(scene, scene.leader())),
    "kill-controller": Kind("kill the controller", lambda scene: _kill(scene, scene.controller())),
    "kill-two": Kind(
        "kill two, start one",
        lambda scene: _kill_and_start(scene, [scene.leader(), scene.controller()], 1),
    ),
    "kill-three": Kind(
        "kill three, start three", lambda scene: _kill_and_start(scene, scene.numbers, 3)
    ),
    "stop-leader": Kind("SIGSTOP a leader", lambda scene: _pause(scene, scene.leader())),
    "stop-controller": Kind(
        "SIGSTOP the controller", lambda scene: _pause(scene, scene.controller())
    ),
    "cut-all": Kind(
        "cut a leader off everything",
        lambda scene: _cut(scene, scene.leader(), scene.everybody),
    ),
    "cut-controller-all": Kind(
        "cut the controller off everything",
        lambda scene: _cut(scene, scene.controller(), scene.everybody),
    ),
    "cut-peers": Kind(
        "cut a leader off its peers",
        lambda scene: _cut(scene, scene.leader(), scene.peers),
        ("zookeeper", "lakelog", "kafka", "kafka-apart"),
    ),
    "cut-controller": Kind(
        "cut a leader off the controller",
        lambda scene: _cut(scene, scene.leader(), [scene.controller_host()]),
    ),
    "cut-follower": Kind(
        "cut a leader off one follower",
        lambda scene: _cut(scene, scene.leader(), [scene.host(scene.follower())]),
    ),
    "cut-out": Kind(
        "cut a leader's packets to its peers",
        lambda scene: _cut(scene, scene.leader(), scene.peers, into=False),
    ),
    "cut-into": Kind(
        "cut its peers' packets to a leader",
        lambda scene: _cut(scene, scene.leader(), scene.peers, out=False),
    ),
    "cut-clients": Kind(
        "cut a leader off the clients", lambda scene: _cut(scene, scene.leader(), [CLIENTS])
    ),
    "cut-store": Kind(
        "cut a leader off the ensemble",
        lambda scene: _cut(scene, scene.leader(), scene.store_hosts),
        _WITH_STORE,
    ),
    "store-away": Kind("kill the ensemble", _store_away, _WITH_STORE),
    "full-disk": Kind("fill a leader's disk", lambda scene: _full_disk(scene, scene.leader())),
    "damage": Kind("damage a leader's log", lambda scene: _damage(scene, scene.leader())),
}
