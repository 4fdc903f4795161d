"""The brokers of a cluster: their states, and their removal."""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.client.admin.change import change, check_change
from lakelog.client.cluster import Cluster
from lakelog.client.errors import check
from lakelog.protocol.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


@dataclass(slots=True, frozen=True)
class RegisteredBroker:
    """A broker of the cluster. A fenced one is stopped, dead or starting, and leads nothing."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(slots=True, frozen=True)
class ClusterDescription:
    """`controller_id` is -1 if there is none."""

    cluster_id: str
    controller_id: int
    brokers: tuple[RegisteredBroker, ...]


class Brokers:
    """`Admin.brokers`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> ClusterDescription:
        """Return the registered brokers by id.

        Brokers before version 2 of DescribeCluster (Kafka 4.0) leave out fenced ones (KIP-1073).
        Raises `UnreachableError` and `ClientError`.
        """
        request = DescribeClusterRequest(include_fenced_brokers=True)
        response = self._cluster.ask_any(request, DescribeClusterResponse)
        check(response.error_code, "the cluster", response.error_message)
        rows = sorted(response.brokers, key=lambda row: row.broker_id)
        brokers = [
            RegisteredBroker(row.broker_id, row.host, row.port, row.rack, row.is_fenced)
            for row in rows
        ]
        return ClusterDescription(response.cluster_id, response.controller_id, tuple(brokers))

    def unregister(self, node_id: int) -> None:
        """Remove the registration of a broker that will not return.

        Its replicas stay assigned to it. Raises `ClientError` with BROKER_ID_NOT_REGISTERED, or
        INVALID_REQUEST if the broker may be running (Kafka removes it then too).
        """
        request = UnregisterBrokerRequest(broker_id=node_id)
        what = f"removing the registration of broker {node_id}"

        def work() -> None:
            response = change(self._cluster, request, UnregisterBrokerResponse, what)
            check_change(response.error_code, f"broker {node_id}", response.error_message)

        self._cluster.retrying(work)
