"""DeleteRecords (key 21): advance the log start offsets of partitions."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class DeleteRecordsPartition(Struct):
    """The new log start offset of a partition; -1 is the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Message, versions="0-2", flexible="2+"):
    """Deletes all records before an offset.

    Versions: 2 is flexible.
    """

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()
    force: bool = boolean("2+", tag=OWN_TAGS, default=False)
    """Whether to delete records that the topic's table does not have yet; lakelog's own field."""


class DeleteRecordsPartitionResult(Struct):
    """The log start offset of a partition, or -1 with an error."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Message, versions="0-2", flexible="2+"):
    """The result for each partition."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)


API = Api(21, DeleteRecordsRequest, DeleteRecordsResponse)
