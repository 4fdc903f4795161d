"""The brokers of a cluster: states, removal, feature levels (KIP-584), and elections of leaders.

An unclean election depends on the ends of the replicas' logs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lakelog import __version__
from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, check, check_change
from lakelog.client.offsets import LATEST, TopicPartition
from lakelog.protocol import cluster as messages
from lakelog.protocol.connections import ApiVersionsRequest, ApiVersionsResponse
from lakelog.protocol.fetch import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lakelog.protocol.replicas import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions


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
        request = messages.DescribeClusterRequest(include_fenced_brokers=True)
        response = self._cluster.ask_any(request, messages.DescribeClusterResponse)
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
        request = messages.UnregisterBrokerRequest(broker_id=node_id)
        what = f"removing the registration of broker {node_id}"

        def work() -> None:
            response = self._cluster.change(request, messages.UnregisterBrokerResponse, what)
            check_change(response.error_code, f"broker {node_id}", response.error_message)

        self._cluster.retrying(work)


_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


@dataclass(slots=True, frozen=True)
class Feature:
    """A feature of the cluster.

    level: the finalized one, 0 if none is. supported: the lowest and the highest level by node id,
    of the brokers that have answered and know the feature. lacking: brokers that do not know it.
    """

    name: str
    level: int
    supported: Mapping[int, tuple[int, int]]
    lacking: tuple[int, ...] = ()

    @property
    def lowest(self) -> int:
        """The lowest level that every broker supports which has answered."""
        return 0 if self.lacking else max(low for low, _ in self.supported.values())

    @property
    def highest(self) -> int:
        """The highest level that every broker supports which has answered."""
        return 0 if self.lacking else min(high for _, high in self.supported.values())


class Features:
    """`Admin.features`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def levels(self) -> Mapping[str, int]:
        """Return the finalized level of each feature, by name.

        Raises `UnreachableError` and `ClientError`.
        """
        return _levels(self._cluster.ask_any(_versions_request(), ApiVersionsResponse))

    def describe(self) -> list[Feature]:
        """Return all features by name, as the brokers that answer support them.

        Raises `UnreachableError` and `ClientError`.
        """
        first = self._cluster.ask_any(_versions_request(), ApiVersionsResponse)
        levels = _levels(first)
        supported: dict[int, dict[str, tuple[int, int]]] = {}
        for node_id in self._cluster.refresh([]).brokers:
            try:
                response = self._cluster.ask(node_id, _versions_request(), ApiVersionsResponse)
            except ClientError:
                continue
            rows = response.supported_features
            supported[node_id] = {row.name: (row.min_version, row.max_version) for row in rows}
        names = sorted(levels.keys() | {name for of_node in supported.values() for name in of_node})
        return [_feature(name, levels.get(name, 0), supported) for name in names]

    def update(
        self,
        upgrades: Mapping[str, int],
        downgrades: Mapping[str, int],
        *,
        is_unsafe: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Finalize all these levels, or none; `validate_only` checks them and changes nothing.

        is_unsafe: whether a downgrade may lose metadata; brokers of lakelog make no difference.
        Raises `ClientError` with INVALID_UPDATE_VERSION (Kafka: FEATURE_UPDATE_FAILED, too), and
        `OutcomeUnknownError`.
        """
        down = _UNSAFE_DOWNGRADE if is_unsafe else _SAFE_DOWNGRADE
        updates = [(name, level, _UPGRADE) for name, level in upgrades.items()]
        updates += [(name, level, down) for name, level in downgrades.items()]
        request = messages.UpdateFeaturesRequest(
            feature_updates=[
                messages.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                for name, level, kind in updates
            ],
            validate_only=validate_only,
        )

        def work() -> None:
            response = self._cluster.change(
                request, messages.UpdateFeaturesResponse, "the change of levels"
            )
            check_change(response.error_code, "the features", response.error_message)
            for row in response.results:
                check_change(row.error_code, row.feature, row.error_message)

        self._cluster.retrying(work)


def _versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="lakelog", client_software_version=__version__)


def _levels(response: ApiVersionsResponse) -> dict[str, int]:
    check(response.error_code, "the features")
    rows = sorted(response.finalized_features, key=lambda row: row.name)
    return {row.name: row.max_version_level for row in rows}


def _feature(
    name: str, level: int, supported: Mapping[int, Mapping[str, tuple[int, int]]]
) -> Feature:
    ranges = {node_id: rows[name] for node_id, rows in sorted(supported.items()) if name in rows}
    lacking = tuple(sorted(supported.keys() - ranges.keys()))
    return Feature(name, level, ranges, lacking)


_ANY_REPLICA = -2
_PREFERRED, _UNCLEAN = 0, 1


class ReplicaEnd(NamedTuple):
    """The end of one replica's log. Of two logs, the log with the greater pair has more records."""

    last_epoch: int
    """The leader epoch of the last record, -1 in an empty log."""
    log_end_offset: int


class Elected(NamedTuple):
    """The result for one partition; `error` is NONE after an election."""

    error: ErrorCode
    message: str


class Elections:
    """`Admin.elections`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def log_ends(
        self, replicas: Mapping[TopicPartition, Iterable[int]]
    ) -> dict[TopicPartition, dict[int, ReplicaEnd]]:
        """Return the ends of the logs of these replicas, by partition and node id.

        A replica that does not answer, or whose log cannot be used, is missing.
        """
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        for key, nodes in replicas.items():
            for node in nodes:
                by_node[node].append(key)
        ends: dict[TopicPartition, dict[int, ReplicaEnd]] = {key: {} for key in replicas}
        self._cluster.refresh([])
        for node, keys in by_node.items():
            for key, end in self._ends_at(node, keys).items():
                ends[key][node] = end
        return ends

    def _ends_at(self, node: int, keys: list[TopicPartition]) -> dict[TopicPartition, ReplicaEnd]:
        requested: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for topic, partition in keys:
            requested[topic].append(
                ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
            )
        request = ListOffsetsRequest(
            replica_id=_ANY_REPLICA,
            topics=[
                ListOffsetsTopic(name=name, partitions=rows) for name, rows in requested.items()
            ],
        )
        try:
            response = self._cluster.ask(node, request, ListOffsetsResponse)
        except ClientError:
            return {}
        return {
            (topic.name, row.partition_index): ReplicaEnd(row.leader_epoch, row.offset)
            for topic in response.topics
            for row in topic.partitions
            if not row.error_code
        }

    def preferred(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, Elected]:
        """Have the preferred replicas lead; None stands for all partitions.

        The result of a partition that needs no election is ELECTION_NOT_NEEDED; among all
        partitions they are left out. Raises as `unclean`.
        """
        topics = None if partitions is None else _topics(dict.fromkeys(partitions, -1))
        return self._elect(ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=topics))

    def unclean(self, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, Elected]:
        """Have these replicas lead partitions without a leader; they may lack records.

        A broker of Apache Kafka chooses the replicas itself. Raises `ClientError`, and
        `OutcomeUnknownError` if the outcome is unknown.
        """
        topics = _topics(leaders)
        return self._elect(ElectLeadersRequest(election_type=_UNCLEAN, topic_partitions=topics))

    def _elect(self, request: ElectLeadersRequest) -> dict[TopicPartition, Elected]:
        def work() -> ElectLeadersResponse:
            response = self._cluster.change(request, ElectLeadersResponse, "the election")
            check_change(response.error_code, "the election", None)
            return response

        response = self._cluster.retrying(work)
        return {
            (topic.topic, row.partition_id): Elected(
                ErrorCode(row.error_code), row.error_message or ErrorCode(row.error_code).name
            )
            for topic in response.replica_election_results
            for row in topic.partition_result
        }


def _topics(leaders: Mapping[TopicPartition, int]) -> list[TopicPartitions]:
    by_name: dict[str, TopicPartitions] = {}
    for (name, partition), leader in sorted(leaders.items()):
        topic = by_name.setdefault(name, TopicPartitions(topic=name))
        topic.partitions.append(partition)
        if leader >= 0:
            topic.leaders.append(leader)
    return list(by_name.values())
