"""One attempt of a task to write its rows, in a transaction of its own that stays open.

Spark may run attempts of one task one after another or at the same time; the commit of the batch
names one of them, and the coordinator aborts the others (docs/formats/commit-sets.md).

The coordinator refuses a query for some reasons, named here in the words of the options. A full
refresh causes some of them: a higher `sinkGeneration` retires the lower generations of a sink. Each
generation has a control record of its own. The record of a lower generation is removed, which
aborts its open transactions, and is claimed in the name of the higher generation. From then on the
coordinator refuses the query of the lower generation, also after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import WriterCommitMessage

from lakelog.base.events import event
from lakelog.client import sink as sinks
from lakelog.client.errors import ClientError, UnsupportedError
from lakelog.spark.sink import options as errors
from lakelog.spark.sink.control import Batch, Content, Control, Step, Tally, next_step, unnamed_sink
from lakelog.spark.sink.options import Repeated, SinkOptions
from lakelog.spark.sink.task import producer_settings, write_rows
from lakelog.tables.topic.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa


_PREFIX = "lk-sink-"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """The batch that a writer belongs to, and the name of its control record.

    expires: whether the brokers may forget the record, as that of a job that never runs again.
    is_unnamed: whether a new checkpoint would have another name.
    """

    name: str
    batch: Batch
    generation: int = 0
    expires: bool = False
    is_unnamed: bool = False

    @property
    def sink_id(self) -> str:
        """The transactional id that holds the control record."""
        return self.sink_id_of(self.generation)

    def sink_id_of(self, generation: int) -> str:
        """Return the same for another generation."""
        suffix = f"#{generation}" if generation else ""
        return f"{_PREFIX}{self.name}{suffix}"


@dataclass
class Attempt(WriterCommitMessage):  # type: ignore[misc]
    """What one task reports: its open transaction, or none if the batch is committed already.

    content: its rows, also if it did not write them.
    """

    run: sinks.QueryRun
    receipt: sinks.Receipt | None
    content: Content


class Task(Protocol):
    """The parts of Spark's `TaskContext` that the sink uses."""

    def partitionId(self) -> int: ...  # noqa: N802
    def taskAttemptId(self) -> int: ...  # noqa: N802
    def getLocalProperty(self, key: str) -> str | None: ...  # noqa: N802


def streaming_job(options: SinkOptions, task: Task) -> Job:
    """Return the job of a task of a streaming query. Raises `OptionError` outside of one."""
    query_id = task.getLocalProperty("sql.streaming.queryId")
    number = task.getLocalProperty("streaming.sql.batchId")
    if query_id is None or number is None:
        raise OptionError("the writer of a stream was called outside of a streaming query")
    run_id = task.getLocalProperty("spark.jobGroup.id") or ""
    batch = Batch(query_id, run_id, int(number))
    is_unnamed = not options.sink_id
    return Job(options.sink_id or query_id, batch, options.generation, is_unnamed=is_unnamed)


def write_attempt(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, job: Job, task: Task
) -> Attempt:
    """Write the rows of a task; return its open transaction after all records are acknowledged.

    Raises `SinkError`, and other errors of the client; nothing of the attempt is then committed.
    """
    tally = Tally(options.topic)
    rows = tally.counted(batches)
    with named_refusals(options), _clients(options, job) as (sink, producer):
        batch = job.batch
        run = sink.begin(batch.query_id, batch.run_id, batch.number, expires=job.expires)
        if run.next_batch < 0:
            _retire_lower(options, job)
            if job.is_unnamed and task.partitionId() == 0:
                _log.warning(unnamed_sink(batch.query_id), extra=event("sink_unnamed"))
        if next_step(job.name, _control(run, job), batch, job.generation) is Step.SKIP:
            return _skipped(run, rows, tally, options)
        try:
            producer.open(run, batch.number, task.partitionId(), task.taskAttemptId())
        except sinks.BatchCommittedError:
            return _skipped(run, rows, tally, options)
        write_rows(rows, lambda: nullcontext(producer), options)
        return Attempt(run, producer.finish(), tally.content)


def _skipped(
    run: sinks.QueryRun, rows: Iterator[pa.RecordBatch], tally: Tally, options: SinkOptions
) -> Attempt:
    """Return the attempt of a task whose batch is committed, with its rows if they are compared."""
    if options.repeated is not Repeated.ANY:
        for _ in rows:
            pass
    return Attempt(run, None, tally.content)


def _retire_lower(options: SinkOptions, job: Job) -> None:
    def open_sink(generation: int) -> sinks.Sink:
        name = job.sink_id_of(generation)
        return sinks.Sink(options.bootstrap, name, client_id=options.client_id)

    retire_lower(open_sink, job.generation)


def _control(run: sinks.QueryRun, job: Job) -> Control | None:
    if run.next_batch < 0:
        return None
    return Control(
        query_id=run.query_id,
        run_id=run.run_id,
        generation=job.generation,
        next_batch=run.next_batch,
        content=None,
    )


_kept: dict[tuple[SinkOptions, str], tuple[sinks.Sink, sinks.SinkProducer]] = {}
"""Clients of the last sink: a worker process runs one task after another."""


@contextmanager
def _clients(options: SinkOptions, job: Job) -> Iterator[tuple[sinks.Sink, sinks.SinkProducer]]:
    """Return connected clients, which are kept for the next task unless this one fails."""
    key = options, job.sink_id
    clients = _kept.pop(key, None)
    if clients is None or not clients[1].is_usable:
        _close_all()
        clients = _connected(options, job)
    try:
        yield clients
    except BaseException:
        with suppress(ClientError, TimeoutError):
            clients[1].close(timeout_s=5.0)
        clients[0].close()
        raise
    _kept[key] = clients


def _connected(options: SinkOptions, job: Job) -> tuple[sinks.Sink, sinks.SinkProducer]:
    sink = sinks.Sink(options.bootstrap, job.sink_id, client_id=options.client_id)
    producer = sinks.SinkProducer(
        options.bootstrap,
        transaction_timeout_ms=options.transaction_timeout_ms,
        **producer_settings(options),
    )
    return sink, producer


def _close_all() -> None:
    for sink, producer in _kept.values():
        sink.close()
        with suppress(ClientError, TimeoutError):
            producer.close(timeout_s=1.0)
    _kept.clear()


_CLAIM = "generation "
_LOWER_MAX = 100
"""The number of generations that a query retires at most, to bound the requests."""


def retire_lower(open_sink: Callable[[int], sinks.Sink], generation: int) -> None:
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


def _is_retired(sink: sinks.Sink) -> bool:
    """Return whether the record is claimed, or never existed."""
    status = sink.read()
    return status is None or retired_by(status.query_id) is not None


def _claim(sink: sinks.Sink, generation: int) -> None:
    name = f"{_CLAIM}{generation}"
    try:
        sink.remove()
        sink.begin(name, name, 0)
    except (sinks.AnotherQueryError, sinks.NotASinkError):
        # The lower query, or another task, came between the two requests: the caller looks again.
        return


_NEXT_GENERATION = "raise 'sinkGeneration' to begin a new count with this checkpoint"

_ADVICE: dict[type[sinks.SinkError], tuple[type[errors.SinkError], str]] = {
    sinks.BatchAheadError: (
        errors.BatchOrderError,
        ": batches between them were never written to this sink. Restore the checkpoint that "
        f"belongs to the sink, or {_NEXT_GENERATION}",
    ),
    sinks.BatchCommittedError: (
        errors.BatchOrderError,
        ": the checkpoint is behind the sink, and batches would be written again, perhaps with "
        f"other rows. Restore the checkpoint that belongs to the sink, or {_NEXT_GENERATION}",
    ),
    sinks.RunFencedError: (
        errors.FencedError,
        ": another run of the query has taken over the sink. Stop one of them, or give each its "
        "own 'sinkId'",
    ),
    sinks.RunLimitError: (
        errors.SinkError,
        ". Find out why the batch fails. When no other run is alive, compare the sink's next batch "
        "with the checkpoint (lakelog txn describe), and remove the sink (lakelog txn remove)",
    ),
    sinks.TransactionNotOpenError: (
        errors.FencedError,
        ": if the batch took longer than the option 'kafka.transaction.timeout.ms' (TIMEOUT), "
        "raise it (and transaction.max.timeout.ms of the broker), or make batches smaller with "
        "the source's 'maxOffsetsPerTrigger'",
    ),
    sinks.RecordsLostError: (
        errors.LostRecordsError,
        ". Nothing of the batch is visible: start the query again, which repeats the batch. To "
        "keep acknowledged records through a power failure, replicate the topic, or set its "
        "durability to fsync",
    ),
    sinks.SinkLimitError: (
        errors.SinkError,
        ": write with fewer tasks (df.coalesce), or to fewer partitions",
    ),
    sinks.NotASinkError: (
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
    if isinstance(error, sinks.AnotherQueryError):
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
