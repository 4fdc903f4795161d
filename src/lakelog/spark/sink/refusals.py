"""Refusals of a sink's coordinator, in the words of the options that resolve them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakelog.client.errors import ClientError, UnsupportedError
from lakelog.client.sink import (
    AnotherQueryError,
    BatchAheadError,
    NotASinkError,
    RunFencedError,
    SinkLimitError,
    TransactionNotOpenError,
)
from lakelog.spark.sink import errors
from lakelog.spark.sink.generations import retired_by
from lakelog.spark.sink.options import SinkOptions

_NEXT_GENERATION = "raise 'sinkGeneration' to begin a new count with this checkpoint"


@contextmanager
def named_refusals(options: SinkOptions) -> Iterator[None]:
    """Raise `SinkError` with the name of an option instead of a refusal of the coordinator."""
    try:
        yield
    except ClientError as error:
        named = _named(error, options)
        if named is None:
            raise
        raise named from error


def _named(error: ClientError, options: SinkOptions) -> errors.SinkError | None:
    if isinstance(error, UnsupportedError):
        return errors.UnsupportedDeliveryError(
            f"option 'delivery': {error.message}. Set 'delivery' to at-least-once, or use "
            "foreachBatch(write_to(...)), which is exactly-once on Apache Kafka 4 too"
        )
    if isinstance(error, AnotherQueryError):
        newer = error.sink and retired_by(error.sink.query_id)
        if newer:
            return errors.OldGenerationError(
                f"the sink is at generation {newer}, this query at {options.generation}: a full "
                "refresh has replaced this query. Stop it, or raise its option 'sinkGeneration'"
            )
        return errors.OtherQueryError(
            f"{error.message}: the checkpoint is new or of another query. Choose another 'sinkId' "
            f"for another query; for a new start of this one {_NEXT_GENERATION}"
        )
    if isinstance(error, BatchAheadError):
        return errors.BatchOrderError(
            f"{error.message}: batches between them were never written to this sink. Restore the "
            f"checkpoint that belongs to the sink, or {_NEXT_GENERATION}"
        )
    if isinstance(error, RunFencedError):
        return errors.FencedError(
            f"{error.message}: another run of the query has taken over the sink. Stop one of them, "
            "or give each its own 'sinkId'"
        )
    if isinstance(error, TransactionNotOpenError):
        return errors.FencedError(
            f"{error.message}: if the batch took longer than the option "
            f"'kafka.transaction.timeout.ms' ({options.transaction_timeout_ms}), raise it (and "
            "transaction.max.timeout.ms of the broker), or make batches smaller with the source's "
            "'maxOffsetsPerTrigger'"
        )
    if isinstance(error, SinkLimitError):
        return errors.SinkError(
            f"{error.message}: write with fewer tasks (df.coalesce), or to fewer partitions"
        )
    if isinstance(error, NotASinkError):
        return errors.SinkError(
            f"{error.message}: another producer, or foreachBatch, uses this name; choose another "
            "'sinkId'"
        )
    return None
