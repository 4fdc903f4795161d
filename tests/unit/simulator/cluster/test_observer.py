"""The deaths and starts that the observer of a cluster notes."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

from doubles.disk_faults import Fault
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import TopicRecord
from lakelog.server.options import StartError
from simulator.brokers.host import DATA
from simulator.checkers.laws import Law
from simulator.cluster.ensemble import STORE
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld


def test_a_broker_that_does_not_start_breaks_a_law() -> None:
    world = ClusterWorld(1, ClusterPlan())
    world.observer.on_start_refused(world.hosts[0], StartError("no"))
    assert world.findings.broken == {Law.STARTS}
    world.simulator.loop.close()


def test_a_broker_that_is_cut_off_from_the_store_may_give_up_its_start() -> None:
    world = ClusterWorld(1, ClusterPlan())
    world.network.cut(STORE, world.hosts[0].name)
    world.observer.on_start_refused(world.hosts[0], StartError("no answer"))
    assert not world.findings.broken
    world.simulator.loop.close()


def test_a_broker_whose_disk_fails_may_give_up_its_start() -> None:
    world = ClusterWorld(1, ClusterPlan())
    host, error = world.hosts[0], StartError("Input/output error")
    error.__cause__ = OSError(errno.EIO, "Input/output error")
    host.disk.faults.add(Fault("read", errno.EIO, "", skip=0, partial=0, times=1))
    host.disk.faults.take("read", DATA)
    world.observer.on_start_refused(host, error)
    assert not world.findings.broken
    world.observer.on_start_refused(world.hosts[1], error)
    assert world.findings.broken == {Law.STARTS}
    world.simulator.loop.close()


def test_a_change_by_a_stopping_broker_counts() -> None:
    """It is committed, and its leaders commit records by it until the end of the process."""
    world = ClusterWorld(1, ClusterPlan())
    host, image = world.hosts[0], MetadataImage().apply_all([TopicRecord("t", b"t" * 16)], 1)
    stopping: Any = SimpleNamespace(
        broker=SimpleNamespace(metadata=SimpleNamespace(image=image), partitions=())
    )
    host.stopping = stopping
    world.observer.on_step(host)
    assert world.image is image
    world.simulator.loop.close()


def test_a_lost_page_cache_excuses_new_producer_ids() -> None:
    world = ClusterWorld(1, ClusterPlan())
    ids = world.producer_ids
    assert ids.may_have("cluster", "txn", 7, 0.0)
    assert not ids.may_have("cluster", "txn", 8, 1.0)
    world.simulator.loop.call_at(2.0, world.simulator.loop.stop)
    world.simulator.loop.run_forever()
    world.observer.on_death(world.hosts[0], power=True)
    assert ids.may_have("cluster", "txn", 9, 3.0)
    world.simulator.loop.close()
