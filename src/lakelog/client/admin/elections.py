"""Elections on request, and the ends of replicas, which an unclean election depends on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.client.admin.change import change, check_change
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError
from lakelog.client.offsets import LATEST, TopicPartition
from lakelog.protocol.fetch import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lakelog.protocol.replicas import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

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
            response = change(self._cluster, request, ElectLeadersResponse, "the election")
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
