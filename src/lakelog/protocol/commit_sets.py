"""Fields of lakelog's own: a sink commits transactions of many producers as a set.

Apache Kafka lacks them, and its brokers ignore them. A client must therefore send them only
on a connection if its broker lists `FEATURE` in ApiVersions. The fields are described in
docs/formats/commit-sets.md, the reasons in ADR 8.
"""

from __future__ import annotations

from enum import IntEnum

from lakelog.wire import schema as wire

FEATURE = "lakelog.txn.set"
NO_BATCH = -1
"""The next batch of a sink that has committed none."""
CONTENT_BYTES_MAX = 64
"""Limit of `CommitSet.content`."""
SINK_TOPIC = "__lk_sink"
"""A topic without records. Sinks that work with Apache Kafka, too, commit their next batch as the
offset of its partition; on lakelog such an offset never expires."""


class Refusal(IntEnum):
    """The reason why a coordinator refuses a request about a sink."""

    ANOTHER_QUERY = 1
    """The sink id belongs to another query."""
    RUN_FENCED = 2
    """A newer run of the query has replaced the run."""
    BATCH_COMMITTED = 3
    """The batch, or a later one, is committed."""
    BATCH_AHEAD = 4
    """An earlier batch is not committed."""
    NOT_OPEN = 5
    """The transaction of a winner is not open: it timed out, was aborted, or never began."""
    CONTENT_DIFFERS = 6
    """A winner's transaction has other partitions than its receipt, or the set differs from the
    committed one."""
    TOO_LARGE = 7
    """The set, or the number of the sink's children, exceeds a limit."""
    NOT_A_SINK = 8
    """The transactional id is unknown, or belongs to an ordinary producer."""
    IS_A_SINK = 9
    """An ordinary request names a sink or its child."""
    RECORDS_LOST = 10
    """The log of a partition has fewer records than the receipt of a winner."""
    TOO_MANY_RUNS = 11
    """Too many runs of the query have begun without a commit."""


class RefusedCommitSet(wire.Struct):
    """A refusal, beside the error code of the response."""

    reason: int = wire.int8()
    message: str = wire.string()


class SinkRun(wire.Struct):
    """The run of a query that a sink belongs to from now on."""

    query_id: str = wire.string()
    run_id: str = wire.string()
    expires: bool = wire.boolean()
    """Whether the coordinator forgets the sink like an unused transactional id."""
    batch: int = wire.int64()
    """The batch that the run is about to write. A new run must begin at the next batch, or repeat
    the last committed batch."""


class SinkState(wire.Struct):
    """The control record of a sink."""

    query_id: str = wire.string()
    run_id: str = wire.string()
    next_batch: int = wire.int64(default=NO_BATCH)
    expires: bool = wire.boolean()
    content: wire.Buffer = wire.binary(tag=0)
    """`CommitSet.content` of the last batch."""


class SinkParent(wire.Struct):
    """The producer id and epoch of the sink that a child belongs to."""

    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()


class WrittenPartition(wire.Struct):
    """The records that a winner wrote to one partition."""

    index: int = wire.int32()
    records: int = wire.int64()


class WrittenTopic(wire.Struct):
    """The records that a winner wrote to one topic."""

    name: str = wire.string()
    partitions: list[WrittenPartition] = wire.array(WrittenPartition)


class Winner(wire.Struct):
    """An open transaction of a child that is committed with the set."""

    transactional_id: str = wire.string()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    topics: list[WrittenTopic] = wire.array(WrittenTopic)


class CommitSet(wire.Struct):
    """The end of one batch: commit the winners, abort all other children up to this batch.

    A request that aborts has no winners.
    """

    query_id: str = wire.string()
    run_id: str = wire.string()
    batch: int = wire.int64()
    winners: list[Winner] = wire.array(Winner)
    content: wire.Buffer = wire.binary(tag=0)
    """An identity of the rows of the batch, at most `CONTENT_BYTES_MAX`, which only the client
    reads."""


class ChildState(wire.Struct):
    """A child of a sink whose transaction has not ended."""

    transactional_id: str = wire.string()
    state: str = wire.string()
    start_time_ms: int = wire.int64()
    partitions: int = wire.int32()
