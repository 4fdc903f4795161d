"""The law about health and metrics judges each of them alone, after a second."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from lakelog.protocol.metadata import MetadataResponsePartition
from lakelog.server.monitoring.readiness import Check
from simulator.brokers.host import BrokerHost
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.cluster.shown import Shown

PLACE = "pulse", 0


class Server:
    def __init__(self) -> None:
        self.is_ready = True
        self.under_min_isr = 0

    @property
    def monitoring(self) -> Server:
        return self

    def checks(self) -> list[Check]:
        return [Check("unfenced", "" if self.is_ready else "cut off")]

    def cluster_numbers(self) -> dict[str, int]:
        return {
            "leaderless_partitions": 0,
            "under_min_isr_partitions": self.under_min_isr,
            "offline_partitions": 0,
        }


class Scene:
    def __init__(self) -> None:
        self.findings = Findings()
        self.server = Server()
        self.process = SimpleNamespace(is_paused=False)
        known = SimpleNamespace(
            name="broker-1", node_id=1, starts=1, server=self.server, process=self.process
        )
        self.host = cast("BrokerHost", known)
        self.fenced: set[int] = set()
        self.shown = Shown(self.findings, [self.host], 2, lambda: self.fenced)

    def see(self, *isr: int, now: float) -> set[Law]:
        row: Any = MetadataResponsePartition(
            partition_index=0,
            leader_id=1,
            leader_epoch=1,
            replica_nodes=[1, 2, 3],
            isr_nodes=list(isr),
            offline_replicas=[],
        )
        self.shown.see_partition(self.host, PLACE, row, 6.0, now)
        return set(self.findings.broken)


def test_a_partition_that_is_shown_breaks_nothing() -> None:
    scene = Scene()
    scene.server.under_min_isr = 1
    assert not scene.see(1, now=0.0)
    assert not scene.see(1, now=9.0)


def test_health_alone_is_not_enough() -> None:
    scene = Scene()
    assert not scene.see(1, now=0.0)
    assert scene.see(1, now=1.1) == {Law.SHOWN}
    assert all("the metrics" in text for text in scene.findings.violations)


def test_metrics_alone_are_not_enough() -> None:
    scene = Scene()
    scene.server.under_min_isr = 1
    assert not scene.see(1, 2, 3, now=0.0)
    assert scene.see(1, 2, 3, now=1.1) == {Law.SHOWN}
    assert all("broker-1" in text for text in scene.findings.violations)


def test_metrics_of_a_paused_process_cannot_be_read() -> None:
    scene = Scene()
    scene.server.under_min_isr = 1
    scene.process.is_paused = True
    scene.see(1, now=0.0)
    assert scene.see(1, now=1.1) == {Law.SHOWN}


def test_the_second_begins_again_after_an_excuse() -> None:
    scene = Scene()
    scene.see(1, 2, 3, now=0.0)
    scene.shown.excuse(scene.host, PLACE)
    assert not scene.see(1, 2, 3, now=5.0)
    assert scene.see(1, 2, 3, now=6.1) == {Law.SHOWN}


def test_a_fenced_broker_is_not_ready_for_long() -> None:
    scene = Scene()
    scene.shown.see_brokers(0.0)
    scene.fenced.add(1)
    scene.shown.see_brokers(10.0)
    scene.shown.see_brokers(11.9)
    assert not scene.findings.broken
    scene.shown.see_brokers(12.1)
    assert scene.findings.broken == {Law.SHOWN}


def test_a_fenced_broker_may_be_unready_or_paused() -> None:
    scene = Scene()
    scene.fenced.add(1)
    scene.server.is_ready = False
    scene.shown.see_brokers(0.0)
    scene.server.is_ready, scene.process.is_paused = True, True
    scene.shown.see_brokers(9.0)
    assert not scene.findings.broken


def test_the_command_lists_the_partition_itself() -> None:
    """A fenced broker alone makes the cluster unhealthy."""
    scene = Scene()
    listed = {"is_healthy": False, "partitions": [{"topic": "pulse", "partition": 0}]}
    unlisted = {"is_healthy": False, "partitions": [{"topic": "pulse", "partition": 1}]}
    for now in (0.0, 9.0):
        scene.shown.see_health(scene.host, PLACE, listed, 6.0, now)
    assert not scene.findings.broken
    for now in (10.0, 11.1):
        scene.shown.see_health(scene.host, PLACE, unlisted, 6.0, now)
    assert scene.findings.broken == {Law.SHOWN}
    assert all("cluster health at broker-1" in text for text in scene.findings.violations)
