"""DescribeProducers (key 61): the producers of partitions and their open transactions."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import Message, Struct, array, error_text, int16, int32, int64, string


class TopicRequest(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class DescribeProducersRequest(Message, versions="0", flexible="0+"):
    """Requests the idempotent and transactional producers of some partitions (KIP-664)."""

    topics: list[TopicRequest] = array(TopicRequest)
    producer_ids: list[int] = array(int64, tag=OWN_TAGS)
    """Only these producers; empty for all. Apache Kafka ignores the field and returns all."""


class ProducerState(Struct):
    """The state of one producer in the partition's log."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    """The epoch of the coordinator that ended its last transaction here; -1 before the first."""
    current_txn_start_offset: int = int64(default=-1)
    """The start offset of its open transaction; -1 without one."""


class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text(default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    """Results for the partitions of one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Message, versions="0", flexible="0+"):
    """The producers whose state is kept, by default for a day after their last write."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)


API = Api(61, DescribeProducersRequest, DescribeProducersResponse)
