"""Refusals of a sink's coordinator, in the words of the options that resolve them.

A full refresh causes some of them: a higher `sinkGeneration` retires the lower generations of a
sink. Each generation has a control record of its own. The record of a lower generation is removed,
which aborts its open transactions, and is claimed in the name of the higher generation. From then
on the coordinator refuses the query of the lower generation, also after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakelog.client.errors import ClientError, UnsupportedError
from lakelog.client.sink import (
    AnotherQueryError,
    BatchAheadError,
    BatchCommittedError,
    NotASinkError,
    RecordsLostError,
    RunFencedError,
    RunLimitError,
    Sink,
    SinkError,
    SinkLimitError,
    TransactionNotOpenError,
)
from lakelog.spark.sink import errors
from lakelog.spark.sink.options import SinkOptions

_CLAIM = "generation "
_LOWER_MAX = 100
"""The number of generations that a query retires at most, to bound the requests."""


def retire_lower(open_sink: Callable[[int], Sink], generation: int) -> None:
    """Retire the control records of lower generations; safe to repeat and to run concurrently.

    open_sink: returns the sink of a generation. Raises `ClientError`.
    """
    for lower in range(max(0, generation - _LOWER_MAX), generation):
        with open_sink(lower) as sink:
            while not _is_retired(sink):
                _claim(sink, generation)


def retired_by(query_id: str) -> str | None:
    """Return the generation that has claimed a control record, `None` for the record of a query."""
    return query_id.removeprefix(_CLAIM) if query_id.startswith(_CLAIM) else None


def _is_retired(sink: Sink) -> bool:
    """Return whether the record is claimed, or never existed."""
    status = sink.read()
    return status is None or retired_by(status.query_id) is not None


def _claim(sink: Sink, generation: int) -> None:
    name = f"{_CLAIM}{generation}"
    try:
        sink.remove()
        sink.begin(name, name, 0)
    except (AnotherQueryError, NotASinkError):
        # The lower query, or another task, came between the two requests: the caller looks again.
        return


_NEXT_GENERATION = "raise 'sinkGeneration' to begin a new count with this checkpoint"

_ADVICE: dict[type[SinkError], tuple[type[errors.SinkError], str]] = {
    BatchAheadError: (
        errors.BatchOrderError,
        ": batches between them were never written to this sink. Restore the checkpoint that "
        f"belongs to the sink, or {_NEXT_GENERATION}",
    ),
    BatchCommittedError: (
        errors.BatchOrderError,
        ": the checkpoint is behind the sink, and batches would be written again, perhaps with "
        f"other rows. Restore the checkpoint that belongs to the sink, or {_NEXT_GENERATION}",
    ),
    RunFencedError: (
        errors.FencedError,
        ": another run of the query has taken over the sink. Stop one of them, or give each its "
        "own 'sinkId'",
    ),
    RunLimitError: (
        errors.SinkError,
        ". Find out why the batch fails. When no other run is alive, compare the sink's next batch "
        "with the checkpoint (lakelog txn describe), and remove the sink (lakelog txn remove)",
    ),
    TransactionNotOpenError: (
        errors.FencedError,
        ": if the batch took longer than the option 'kafka.transaction.timeout.ms' (TIMEOUT), "
        "raise it (and transaction.max.timeout.ms of the broker), or make batches smaller with "
        "the source's 'maxOffsetsPerTrigger'",
    ),
    RecordsLostError: (
        errors.LostRecordsError,
        ". Nothing of the batch is visible: start the query again, which repeats the batch. To "
        "keep acknowledged records through a power failure, replicate the topic, or set its "
        "durability to fsync",
    ),
    SinkLimitError: (
        errors.SinkError,
        ": write with fewer tasks (df.coalesce), or to fewer partitions",
    ),
    NotASinkError: (
        errors.SinkError,
        ": another producer, or foreachBatch, uses this name; choose another 'sinkId'",
    ),
}
"""The errors of Spark's users, and their texts after the coordinator's; TIMEOUT stands for the
transaction timeout of the query."""


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
    for refusal, (kind, advice) in _ADVICE.items():
        if isinstance(error, refusal):
            timeout = str(options.transaction_timeout_ms)
            return kind(f"{error.message}{advice.replace('TIMEOUT', timeout)}")
    return None
