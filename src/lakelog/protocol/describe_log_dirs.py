"""DescribeLogDirs (key 35): how much is stored where."""

from __future__ import annotations

from lakelog.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


class DescribeLogDirsRequest(Message, versions="1-5", flexible="2+"):
    """Asks for the sizes of some partitions, or with null topics of all; 2 is flexible."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    """Size of one partition in bytes, and how far it is behind."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    """Behind the high watermark, or behind the log that this copy will replace."""
    is_future_key: bool = boolean()
    """Whether this copy is being moved here from another directory."""


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


class DescribeLogDirsResponse(Message, versions="1-5", flexible="2+"):
    """An entry per log directory of this broker.

    Versions: 3 adds an error for the whole, 4 the sizes of the file system, 5 whether the directory
    takes no new partitions.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
