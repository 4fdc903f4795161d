"""Requests of a client to the broker that leads the partition or coordinates the group."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lakelog.protocol.groups import HeartbeatRequest
from lakelog.protocol.metadata import MetadataRequest
from lakelog.protocol.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from lakelog.protocol.transactions import AddPartitionsToTxnRequest, InitProducerIdRequest
from simulator.clients.producers.batches import produce_request
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.routing import CoordinatorOf, LeaderOf, RoutedConnection, route_of
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world

PLACE = ("orders", 2)
FETCH = FetchRequest(topics=[FetchTopic(topic="orders", partitions=[FetchPartition(partition=2)])])
LIST = ListOffsetsRequest(
    topics=[ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=2)])]
)


@pytest.mark.parametrize(
    ("message", "route"),
    [
        (produce_request(PLACE, b""), LeaderOf("orders", 2)),
        (FETCH, LeaderOf("orders", 2)),
        (LIST, LeaderOf("orders", 2)),
        (HeartbeatRequest(group_id="team"), CoordinatorOf(0, "team")),
        (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="team")]),
            CoordinatorOf(0, "team"),
        ),
        (InitProducerIdRequest(transactional_id="txn"), CoordinatorOf(1, "txn")),
        (
            AddPartitionsToTxnRequest(v3_and_below_transactional_id="txn"),
            CoordinatorOf(1, "txn"),
        ),
        (InitProducerIdRequest(transactional_id=None), None),
        (MetadataRequest(topics=None), None),
    ],
)
def test_the_request_decides_its_receiver(message: Any, route: Any) -> None:
    assert route_of(message) == route


@pytest.mark.long
def test_a_client_finds_the_next_leader_after_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each broker that led a partition got requests for it."""
    receivers: dict[Any, set[int]] = {}
    receiver = RoutedConnection._receiver

    async def noted(self: RoutedConnection, route: Any, until: float) -> int:
        node_id = await receiver(self, route, until)
        if isinstance(route, LeaderOf):
            receivers.setdefault(route, set()).add(node_id)
        return node_id

    monkeypatch.setattr(RoutedConnection, "_receiver", noted)
    plan = ClusterPlan(4.0, frozenset({"plain"}), frozenset({"kill"}))
    assert run_world(ClusterWorld(2, plan)).violations == ()
    assert max(len(nodes) for nodes in receivers.values()) > 1
