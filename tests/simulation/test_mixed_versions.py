"""A broker of a version without numbers of decisions and with leases by Metadata, amid newer ones.

Whether it coordinates, leads or follows: nothing is lost, and every transaction ends whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from lakelog.base.errors import KafkaError
from lakelog.coordinator.transaction.endings import Marker
from lakelog.protocol.metadata import MetadataRequest
from lakelog.records.control import NO_DECISION
from lakelog.server.broker import Broker
from lakelog.server.coordinators.leaders import ClusterMarkers
from lakelog.server.coordinators.lease import Agreement, LaterLeaders
from lakelog.server.handlers import transactions
from lakelog.server.inter_broker.peer import Peer
from simulator.cluster.plan import CLASSIC, ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


def unnumbered(marker: Any) -> Any:
    return marker._replace(decision=NO_DECISION)


def age(monkeypatch: pytest.MonkeyPatch, old: int) -> Counter[str]:
    """Have this broker neither send nor understand the new fields; count its old requests."""
    seen = Counter[str]()
    write, handle = ClusterMarkers.write, transactions._write_markers
    request, answer = Peer.request, LaterLeaders._answer

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

    async def request_from_newer(self: Peer, message: Any, **options: Any) -> Any:
        if self.node_id != old or not getattr(message, "want_lease", False):
            return await request(self, message, **options)
        response: Any = await request(self, type(message)(broker_id=message.broker_id), **options)
        assert not response.is_lease_granted
        return response

    async def ask_as_before(self: LaterLeaders, peer: Peer) -> Agreement:
        if self._node_id != old:
            return await answer(self, peer)
        seen["wanted a lease"] += 1
        message = MetadataRequest(topics=[], lease_of=old)
        with suppress(KafkaError):
            response: Any = await request(peer, message, timeout_s=1.0)
            assert response.controller_id == -1, "it names no controller"
        return Agreement.OPEN

    monkeypatch.setattr(ClusterMarkers, "write", write_as_before)
    monkeypatch.setattr(transactions, "_write_markers", handle_as_before)
    monkeypatch.setattr(Peer, "request", request_from_newer)
    monkeypatch.setattr(LaterLeaders, "_answer", ask_as_before)
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
    assert run_world(ClusterWorld(seed, plan)).violations == ()
    assert seen["coordinated"] and seen["led"]
    assert seen["wanted a lease"] or seed == 1
