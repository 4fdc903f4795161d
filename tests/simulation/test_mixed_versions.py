"""A broker of a version without numbers of decisions and without promises, amid newer ones.

Whether it coordinates, leads or follows: nothing is lost, and every transaction ends whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from lakelog.coordinator.transaction.markers import Marker
from lakelog.records.control import NO_DECISION
from lakelog.server.broker import Broker
from lakelog.server.coordinators.cluster_markers import ClusterMarkers
from lakelog.server.handlers import metadata, write_txn_markers
from lakelog.server.requests.context import Context
from simulator.cluster.execution import run_cluster
from simulator.cluster.plan import CLASSIC, ClusterPlan
from simulator.cluster.world import ClusterWorld


def unnumbered(marker: Any) -> Any:
    return marker._replace(decision=NO_DECISION)


def age(monkeypatch: pytest.MonkeyPatch, old: int) -> Counter[str]:
    """Have this broker neither send nor understand the new fields; count its old requests."""
    seen = Counter[str]()
    write, handle, promised = ClusterMarkers.write, write_txn_markers._write, metadata._promised

    def write_as_before(self: ClusterMarkers, markers: Sequence[Marker]) -> Any:
        if self._leaders.node_id == old:
            seen["coordinated"] += len(markers)
            markers = [unnumbered(each) for each in markers]
        return write(self, markers)

    def handle_as_before(broker: Broker, marker: Any, *rest: Any) -> Any:
        if broker.node_id == old and marker.decision != NO_DECISION:
            seen["led"] += 1
            marker.decision = NO_DECISION
        return handle(broker, marker, *rest)

    def promised_as_before(broker: Broker, context: Context, node_id: int) -> bool:
        return broker.node_id == old or promised(broker, context, node_id)

    monkeypatch.setattr(ClusterMarkers, "write", write_as_before)
    monkeypatch.setattr(write_txn_markers, "_write", handle_as_before)
    monkeypatch.setattr(metadata, "_promised", promised_as_before)
    return seen


@pytest.mark.parametrize("seed", [1, 2, pytest.param(3, marks=pytest.mark.long)])
def test_an_older_broker_coordinates_leads_and_follows(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    seen = age(monkeypatch, old=seed)
    plan = ClusterPlan(
        10.0,
        frozenset({CLASSIC, "transactions", "classic group"}),
        frozenset({"kill", "pause", "cut brokers", "cut store"}),
    )
    assert run_cluster(ClusterWorld(seed, plan)).violations == ()
    assert seen["coordinated"] and seen["led"]
