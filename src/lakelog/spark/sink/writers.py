"""The writers of `format("lakelog")`, which Spark constructs in several processes.

A writer is constructed in a planning process and sent to the tasks. The writer of a batch query is
sent to the process that commits, too; that of a stream is constructed there again, before each
commit. Constructors therefore ask no broker.

With `delivery=at-least-once` a task that fails and runs again writes its rows again, and so does a
micro-batch that Spark repeats after a crash.

Otherwise the transactions of all tasks are committed as one set. A commit without an answer is
repeated with the same transactions until its outcome is known, and never aborted. Spark calls
`abort` after a failed or unknown commit too, even in another process; the coordinator then refuses
to abort a committed batch.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from lakelog.base.events import event
from lakelog.client.errors import ClientError, OutcomeUnknownError
from lakelog.client.producer.api import Producer
from lakelog.client.sink import QueryRun, Receipt, Sink
from lakelog.spark.sink.attempts import Attempt, Job, named_refusals, streaming_job, write_attempt
from lakelog.spark.sink.control import Batch, Content, check_repeated
from lakelog.spark.sink.options import (
    Delivery,
    FencedError,
    Repeated,
    SinkError,
    SinkOptions,
    UnknownOutcomeError,
    parse_sink_options,
)
from lakelog.spark.sink.task import check_columns, producer_settings, write_rows
from lakelog.tables.topic.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_TRY_S = 20.0

_log = logging.getLogger(__name__)

Messages = Sequence[WriterCommitMessage | None]


def commit_set(options: SinkOptions, messages: Messages, batch: int) -> None:
    """Commit the transactions of all tasks, unless the batch is committed already.

    Raises `SinkError`: `BatchOrderError` if the committed batch has other rows. After
    `UnknownOutcomeError` the batch may be committed; its next run finds out.
    """
    attempts = [message for message in messages if isinstance(message, Attempt)]
    run = _only_run(attempts, batch)
    receipts = [attempt.receipt for attempt in attempts if attempt.receipt is not None]
    content = sum((attempt.content for attempt in attempts), Content())
    with named_refusals(options), _connected(options, run.sink_id) as sink:
        if len(receipts) < len(attempts):
            _check_repeated(options, sink, batch, content)
            return
        written = [receipt for receipt in receipts if receipt.written]
        _commit(options, sink, run, batch, written, content)


def abort_set(options: SinkOptions, messages: Messages, batch: int) -> None:
    """Abort the transactions of a failed batch, if it is not committed. Raises nothing.

    Without a finished task nothing is known; the next run aborts the transactions then. The
    transactions of a committed batch have ended.
    """
    attempts = [message for message in messages if isinstance(message, Attempt)]
    if not attempts or any(attempt.receipt is None for attempt in attempts):
        return
    run = attempts[0].run
    try:
        with Sink(options.bootstrap, run.sink_id, timeout_s=_TRY_S) as sink:
            sink.abort(run, batch)
    except (ClientError, OSError) as error:
        _log.warning(
            "Batch %d of %s is not aborted: %s",
            batch,
            run.sink_id,
            error,
            extra=event("sink_abort_failed", sink=run.sink_id, batch=batch),
        )


def _check_repeated(options: SinkOptions, sink: Sink, batch: int, content: Content) -> None:
    """Raise `BatchOrderError` if the committed batch has other rows than its repetition.

    A sink that was removed meanwhile, or is past this batch, has nothing to compare.
    """
    status = sink.read()
    if status is None or status.next_batch != batch + 1:
        return
    stored = Content.from_bytes(status.content)
    check_repeated(sink.sink_id, batch, stored, content, options.repeated, options.generation)


def _commit(
    options: SinkOptions,
    sink: Sink,
    run: QueryRun,
    batch: int,
    receipts: list[Receipt],
    content: Content,
) -> None:
    deadline = time.monotonic() + options.transaction_timeout_ms / 1000
    while True:
        try:
            sink.commit(run, batch, receipts, content.to_bytes())
            return
        except OutcomeUnknownError as error:
            if time.monotonic() >= deadline:
                raise UnknownOutcomeError(
                    f"{error.message}: start the query again when the broker is reachable; it "
                    "skips the batch if it is committed"
                ) from error


_kept: dict[tuple[SinkOptions, str], Sink] = {}
"""The client of the last commit: Spark commits all batches of a query in one process."""


@contextmanager
def _connected(options: SinkOptions, sink_id: str) -> Iterator[Sink]:
    """Return a client, which is kept for the next commit unless this one fails."""
    key = options, sink_id
    sink = _kept.pop(key, None)
    if sink is None:
        while _kept:
            _kept.popitem()[1].close()
        sink = Sink(options.bootstrap, sink_id, client_id=options.client_id, timeout_s=_TRY_S)
    try:
        yield sink
    except BaseException:
        sink.close()
        raise
    _kept[key] = sink


def _only_run(attempts: list[Attempt], batch: int) -> QueryRun:
    """Return the run of all tasks. Raises `FencedError`, and `SinkError` without a task.

    Spark runs a task for a batch without rows, too. Without one nothing is known about the query,
    and a batch that is not counted would stop the next one.
    """
    if not attempts:
        raise SinkError(f"Spark commits batch {batch}, of which no task ran: start the query again")
    runs = {
        (attempt.run.run_id, attempt.run.producer_id, attempt.run.producer_epoch)
        for attempt in attempts
    }
    if len(runs) > 1:
        raise FencedError("another run of the query took over the sink while the batch was written")
    return attempts[0].run


@dataclass
class WrittenByTask(WriterCommitMessage):  # type: ignore[misc]
    """The number of records that one task wrote."""

    records: int


class _AtLeastOnce:
    """Writing of one task's rows, common to batch and streaming queries."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenByTask:
        """Write all rows; return after the broker acknowledged all of them.

        Raises `SinkError`, and the first other error of a delivery.
        """
        producer = partial(
            Producer,
            self._options.bootstrap,
            acks=self._options.acks,
            **producer_settings(self._options),
        )
        return WrittenByTask(write_rows(iterator, producer, self._options))


class BatchWriter(_AtLeastOnce, DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write.format("lakelog").mode("append")`."""


class StreamWriter(_AtLeastOnce, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream.format("lakelog")`. Commit and abort do nothing."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: the records are in the log."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: a log cannot remove single records."""


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The same with `delivery=exactly-once`: each micro-batch is one commit set."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Attempt:
        """Write the rows of one task. Raises as `write_attempt`."""
        task = _task()
        return write_attempt(iterator, self._options, streaming_job(self._options, task), task)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the batch. Raises as `commit_set`."""
        commit_set(self._options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort the batch unless it is committed."""
        abort_set(self._options, messages, batchId)


class ExactlyOnceBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write` with `delivery=exactly-once`: all rows become visible at once, or none.

    With `writeId` the brokers remember the write, so that a second run writes nothing.
    """

    def __init__(self, options: SinkOptions) -> None:
        # The id names the rows: a second write with it writes nothing, whatever its rows are.
        self._options = replace(options, repeated=Repeated.ANY)
        # Made in the planning process; tasks and commit get a copy of this writer.
        run_id = uuid.uuid4().hex
        name = f"write-{options.write_id or run_id}"
        self._job = Job(name, Batch(name, run_id, 0), expires=not options.write_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Attempt:
        """Write the rows of one task. Raises as `write_attempt`."""
        return write_attempt(iterator, self._options, self._job, _task())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the write. Raises as `commit_set`."""
        commit_set(self._options, messages, self._job.batch.number)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the write unless it is committed."""
        abort_set(self._options, messages, self._job.batch.number)


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """Return the writer of a batch query. Raises `OptionError`."""
    if overwrite:
        raise OptionError('a topic cannot be overwritten: use .mode("append")')
    given = _checked(options, schema)
    if given.delivery is Delivery.AT_LEAST_ONCE:
        return BatchWriter(given)
    of_streams = {
        "sinkId": given.sink_id,
        "sinkGeneration": given.generation,
        "repeatedBatch": given.repeated is not Repeated.SAME_ROWS,
    }
    for name, is_set in of_streams.items():
        if is_set:
            raise OptionError(f"option {name!r} is for streams: a batch write has 'writeId'")
    return ExactlyOnceBatchWriter(given)


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    """Return the writer of a streaming query. Raises `OptionError`."""
    given = _checked(options, schema)
    if given.write_id:
        raise OptionError("option 'writeId' is for batch writes: a stream has 'sinkId'")
    if given.delivery is Delivery.AT_LEAST_ONCE:
        return StreamWriter(given)
    return ExactlyOnceStreamWriter(given)


def _checked(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    given = parse_sink_options(options)
    check_columns(schema, given.topic)
    return given


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "write() runs in tasks only"
    return task
