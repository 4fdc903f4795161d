"""The writers of `format("lakelog")`, which Spark constructs in several processes.

A writer is constructed in a planning process and sent to the tasks. The writer of a batch query is
sent to the process that commits, too; that of a stream is constructed there again, before each
commit. Constructors therefore ask no broker.

With `delivery=at-least-once` a task that fails and runs again writes its rows again, and so does a
micro-batch that Spark repeats after a crash.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from lakelog.client.producer.api import Producer
from lakelog.spark.sink.attempts import Attempt, Job, streaming_job, write_attempt
from lakelog.spark.sink.columns import check_columns
from lakelog.spark.sink.control import Batch
from lakelog.spark.sink.options import Delivery, Repeated, SinkOptions, parse_sink_options
from lakelog.spark.sink.sets import abort_set, commit_set
from lakelog.spark.sink.task import producer_settings, write_rows
from lakelog.tables.topic.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


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
