"""CreatePartitions (key 37): make topics wider."""

from __future__ import annotations

from lakelog.wire.schema import Message, Struct, array, boolean, error_text, int16, int32, string


class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition."""

    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    """The whole number of partitions wanted, and where to put the new ones."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+"
    )
    """Null leaves the placement to the broker."""


class CreatePartitionsRequest(Message, versions="0-3", flexible="2+"):
    """Raises the number of partitions; it can never fall.

    Versions: 2 is flexible, 3 may be refused by a quota.
    """

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """One topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = error_text(default=None)


class CreatePartitionsResponse(Message, versions="0-3", flexible="2+"):
    """What became of each topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
