"""A client's connections to all brokers of a cluster; each request goes where it belongs.

As real clients do, it asks a broker for the leader of a partition (Metadata) or for the coordinator
of a group or transaction (FindCoordinator), keeps the answer, and asks again after an error that
says that the answer is out of date.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.protocol.fetch import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from lakelog.protocol.groups import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.protocol.offsets import OffsetCommitRequest, OffsetFetchRequest, TxnOffsetCommitRequest
from lakelog.protocol.produce import ProduceRequest
from lakelog.protocol.topics import DeleteRecordsRequest
from lakelog.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeProducersRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from lakelog.server.requests.metrics import codes_in
from simulator.engine.process import Process
from simulator.network.connection import PATIENCE_S, Connections, NoResponse
from simulator.network.network import Network
from simulator.network.sockets import Address

_LOOK_UP_S = 1.5
"""Before another broker is asked."""
_PAUSE_S = 0.1
_GROUP, _TRANSACTION = 0, 1

STALE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Errors after which a client asks again for the leader or the coordinator."""


class LeaderOf(NamedTuple):
    topic: str
    partition: int


class CoordinatorOf(NamedTuple):
    kind: int
    key: str


Route = LeaderOf | CoordinatorOf | None
"""The receiver of a request; None if any broker will do."""


def _group(message: Any) -> Route:
    return CoordinatorOf(_GROUP, message.group_id)


def _transaction(message: Any) -> Route:
    key = message.transactional_id
    return None if key is None else CoordinatorOf(_TRANSACTION, key)


def _added(message: Any) -> Route:
    """Return the coordinator of AddPartitionsToTxn up to version 3."""
    return CoordinatorOf(_TRANSACTION, message.v3_and_below_transactional_id)


def _fetched_group(message: Any) -> Route:
    return CoordinatorOf(_GROUP, message.groups[0].group_id)


def _produced(message: Any) -> Route:
    topic = message.topic_data[0]
    return LeaderOf(topic.name, topic.partition_data[0].index)


def _fetched(message: Any) -> Route:
    topic = message.topics[0]
    return LeaderOf(topic.topic, topic.partitions[0].partition)


def _listed(message: Any) -> Route:
    topic = message.topics[0]
    return LeaderOf(topic.name, topic.partitions[0].partition_index)


def _described(message: Any) -> Route:
    topic = message.topics[0]
    return LeaderOf(topic.name, topic.partition_indexes[0])


_ROUTES: Mapping[type, Callable[[Any], Route]] = {
    ProduceRequest: _produced,
    FetchRequest: _fetched,
    OffsetForLeaderEpochRequest: _fetched,
    ListOffsetsRequest: _listed,
    DeleteRecordsRequest: _listed,
    DescribeProducersRequest: _described,
    OffsetFetchRequest: _fetched_group,
    InitProducerIdRequest: _transaction,
    AddPartitionsToTxnRequest: _added,
    AddOffsetsToTxnRequest: _transaction,
    EndTxnRequest: _transaction,
    **dict.fromkeys(
        (
            JoinGroupRequest,
            SyncGroupRequest,
            HeartbeatRequest,
            LeaveGroupRequest,
            OffsetCommitRequest,
            TxnOffsetCommitRequest,
            ConsumerGroupHeartbeatRequest,
        ),
        _group,
    ),
}


def route_of(message: Any) -> Route:
    """Return the receiver of a request; all partitions of one request have the same leader."""
    find = _ROUTES.get(type(message))
    return None if find is None else find(message)


class RoutedConnection:
    """The connections of one client to a cluster.

    Args:
        brokers: the address of each broker by node id; more may come.
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        brokers: Mapping[int, Address],
        rng: random.Random,
        on_late: Callable[[str, float], None],
    ) -> None:
        self._loop = network.loop
        self._rng = rng
        self._brokers = brokers
        self._connections = Connections(network, process, brokers, on_late)
        self._look_ups = Connections(network, process, brokers)
        self._known: dict[Route, int] = {}
        self._resolving = asyncio.Lock()

    async def call(self, message: Any, version: int, timeout_s: float = PATIENCE_S) -> Any:
        """Send a request to its receiver and return the response. Raises `NoResponse`."""
        route = route_of(message)
        node_id = await self._receiver(route, self._loop.time() + PATIENCE_S)
        try:
            answer = await self._connections.to(node_id).call(message, version, timeout_s)
        except NoResponse:
            self._forget(route, node_id)
            raise
        if not STALE.isdisjoint(_codes(answer)):
            self._forget(route, node_id)
        return answer

    async def cast(self, message: Any, version: int) -> None:
        """Send a request that has no response (acks=0). Raises `NoResponse`."""
        route = route_of(message)
        node_id = await self._receiver(route, self._loop.time() + PATIENCE_S)
        # Without responses only time reveals another leader.
        self._forget(route, node_id)
        await self._connections.to(node_id).cast(message, version)

    def close(self) -> None:
        self._connections.close()
        self._look_ups.close()

    def _forget(self, route: Route, node_id: int) -> None:
        if self._known.get(route) == node_id:
            del self._known[route]

    async def _receiver(self, route: Route, until: float) -> int:
        """Return the node id of the receiver. Raises `NoResponse` after the time `until`.

        One request at a time asks: requests leave in the order of the calls.
        """
        async with self._resolving:
            while route not in self._known:
                found = await self._ask(route)
                if found is not None:
                    self._known[route] = found
                elif self._loop.time() >= until:
                    raise NoResponse(f"no broker knows {route}")
                else:
                    await asyncio.sleep(_PAUSE_S)
            return self._known[route]

    async def _ask(self, route: Route) -> int | None:
        """Ask some broker for the receiver; return None if it does not know it."""
        node_id = self._rng.choice(sorted(self._brokers))
        if route is None:
            return node_id
        look_up = self._look_ups.to(node_id)
        try:
            if isinstance(route, LeaderOf):
                return _leader_in(await look_up.call(_metadata_of(route), 9, _LOOK_UP_S), route)
            request = FindCoordinatorRequest(key_type=route.kind, coordinator_keys=[route.key])
            (found,) = (await look_up.call(request, 4, _LOOK_UP_S)).coordinators
        except NoResponse:
            return None
        return found.node_id if found.error_code == 0 else None


def _codes(response: Any) -> set[int]:
    """Return all error codes of a response; one API has another name for them."""
    if isinstance(response, AddPartitionsToTxnResponse):
        topics = response.results_by_topic_v3_and_below
        return {
            each.partition_error_code for topic in topics for each in topic.results_by_partition
        }
    return set(codes_in(response))


def _metadata_of(route: LeaderOf) -> MetadataRequest:
    topic = MetadataRequestTopic(name=route.topic)
    return MetadataRequest(topics=[topic], allow_auto_topic_creation=False)


def _leader_in(response: Any, route: LeaderOf) -> int | None:
    for partition in response.topics[0].partitions:
        if partition.partition_index == route.partition and partition.leader_id >= 0:
            leader_id: int = partition.leader_id
            return leader_id
    return None
