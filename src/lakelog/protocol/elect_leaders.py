"""ElectLeaders (key 43): elections on request (KIP-183, KIP-460)."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import Message, Struct, array, error_text, int8, int16, int32, string


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)
    leaders: list[int] = array(int32, "2+", tag=OWN_TAGS)
    """The wanted leaders of an unclean election, one for each partition; none: any replica."""


class ElectLeadersRequest(Message, versions="0-2", flexible="2+"):
    """Requests elections. Versions: 1 can request an unclean election, 2 is flexible."""

    election_type: int = int8("1+")
    """0: preferred replica, 1: unclean."""
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    """Null stands for all partitions."""
    timeout_ms: int = int32(default=60_000)


class PartitionResult(Struct):
    """The result for one partition."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text()


class ReplicaElectionResult(Struct):
    """Results for the partitions of one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, versions="0-2", flexible="2+"):
    """The result for each partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


API = Api(43, ElectLeadersRequest, ElectLeadersResponse)
