"""DescribeLogDirs (key 35): the sizes of partitions by log directory."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


class DescribeLogDirsRequest(Message, versions="1-5", flexible="2+"):
    """Requests the sizes of some partitions, or of all with null topics.

    Versions: 2 is flexible.
    """

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    """The size of one partition in bytes, and its lag in offsets."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    """The lag behind the high watermark, or behind the log that this copy will replace."""
    is_future_key: bool = boolean()
    """Whether this copy is the target of a move from another directory."""


class DescribeLogDirsTopic(Struct):
    """Partitions of one topic in this directory."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """One log directory; it has an error and no topics when it is offline."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    """Of the file system, -1 when unknown."""
    usable_bytes: int = int64("4+", default=-1)
    """Of the file system, -1 when unknown."""
    is_cordoned: bool = boolean("5+")
    problem: str = string("2+", tag=OWN_TAGS)
    """Why the broker cannot write to the directory, or to the logs of some partitions in it.
    Apache Kafka does not have this field."""


class DescribeLogDirsResponse(Message, versions="1-5", flexible="2+"):
    """One entry for each log directory of this broker.

    Versions: 3 adds an error for the response, 4 the sizes of the file system, 5 whether the
    directory accepts no new partitions.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)


API = Api(35, DescribeLogDirsRequest, DescribeLogDirsResponse)
