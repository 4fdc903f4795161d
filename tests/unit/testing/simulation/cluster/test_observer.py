"""The violations that the observer of a cluster reports."""

from __future__ import annotations

from lakelog.server.app import StartError
from lakelog.testing.simulation.checkers.laws import Law
from lakelog.testing.simulation.cluster.plan import ClusterPlan
from lakelog.testing.simulation.cluster.world import ClusterWorld


def test_a_broker_that_does_not_start_breaks_a_law() -> None:
    world = ClusterWorld(1, ClusterPlan())
    world.observer.on_start_refused(world.hosts[0], StartError("no"))
    assert world.findings.broken == {Law.STARTS}
    world.simulator.loop.close()
