"""CreatePartitions (key 37): add partitions to topics."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, boolean, error_text, int16, int32, string


class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition."""

    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Struct):
    """The new total number of partitions, and optionally the replicas of the added ones."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+"
    )
    """Null lets the broker choose the replicas."""


class CreatePartitionsRequest(Message, versions="0-3", flexible="2+"):
    """Increases the number of partitions, which can never decrease.

    Versions: 2 is flexible, 3 can be rejected by a quota.
    """

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """The result for one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = error_text(default=None)


class CreatePartitionsResponse(Message, versions="0-3", flexible="2+"):
    """The result for each topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


API = Api(37, CreatePartitionsRequest, CreatePartitionsResponse)
