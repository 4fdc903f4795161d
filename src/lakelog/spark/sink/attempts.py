"""One attempt of a task to write its rows, in a transaction of its own that stays open.

Spark may run attempts of one task one after another or at the same time; the commit of the batch
names one of them, and the coordinator aborts the others (docs/formats/commit-sets.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import WriterCommitMessage

from lakelog.base.events import event
from lakelog.client.errors import ClientError
from lakelog.client.sink import BatchCommittedError, QueryRun, Receipt, Sink, SinkProducer
from lakelog.spark.sink.content import Content, Tally
from lakelog.spark.sink.control import Batch, Control, Step, next_step, unnamed_sink
from lakelog.spark.sink.options import Repeated, SinkOptions
from lakelog.spark.sink.refusals import named_refusals, retire_lower
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

    run: QueryRun
    receipt: Receipt | None
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
        except BatchCommittedError:
            return _skipped(run, rows, tally, options)
        write_rows(rows, lambda: nullcontext(producer), options)
        return Attempt(run, producer.finish(), tally.content)


def _skipped(
    run: QueryRun, rows: Iterator[pa.RecordBatch], tally: Tally, options: SinkOptions
) -> Attempt:
    """Return the attempt of a task whose batch is committed, with its rows if they are compared."""
    if options.repeated is not Repeated.ANY:
        for _ in rows:
            pass
    return Attempt(run, None, tally.content)


def _retire_lower(options: SinkOptions, job: Job) -> None:
    def open_sink(generation: int) -> Sink:
        name = job.sink_id_of(generation)
        return Sink(options.bootstrap, name, client_id=options.client_id)

    retire_lower(open_sink, job.generation)


def _control(run: QueryRun, job: Job) -> Control | None:
    if run.next_batch < 0:
        return None
    return Control(
        query_id=run.query_id,
        run_id=run.run_id,
        generation=job.generation,
        next_batch=run.next_batch,
        content=None,
    )


_kept: dict[tuple[SinkOptions, str], tuple[Sink, SinkProducer]] = {}
"""Clients of the last sink: a worker process runs one task after another."""


@contextmanager
def _clients(options: SinkOptions, job: Job) -> Iterator[tuple[Sink, SinkProducer]]:
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


def _connected(options: SinkOptions, job: Job) -> tuple[Sink, SinkProducer]:
    sink = Sink(options.bootstrap, job.sink_id, client_id=options.client_id)
    producer = SinkProducer(
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
