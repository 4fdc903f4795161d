"""The streaming query of the archive: a source of offset ranges and a sink that archives them.

The rows of the query are offset ranges. Tasks fetch the records themselves, so Spark carries a few
numbers per task, and the exact end of a batch survives gaps in the offsets.

Spark runs this code in several Python processes. One planning process has the `RangeReader`. Tasks
run `ArchiveWriter.write`. `commit` and `abort` run in a process of their own, which Spark may start
for that one call. An import of PyIceberg takes about a second, so only commits and tasks that write
to a remote warehouse import it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from lakelog.spark.python_processes import exempt_modules
from lakelog.tables.archive.files import (
    PARTITIONS_MAX,
    WrittenFiles,
    add_unknown,
    file_schema,
    write_ranges,
)
from lakelog.tables.archive.planner import BatchPlanner
from lakelog.tables.archive.progress import ArchiveJob, Extent, merge_ranges
from lakelog.tables.archive.refusals import RefusedCount, Span
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.offsets import OffsetRange, StreamOffset

if TYPE_CHECKING:
    from lakelog.tables.archive.commit import Batch

FORMAT = "lakelog-archive"
_RANGE = "topic string, partition int, start long, end long, topic_id string, leader_epoch int"
_SCHEMA = f"{_RANGE}, schema binary, files_max int"


class ArchiveSource(DataSource):  # type: ignore[misc]
    """The data source that `sync_topic` registers. Its name is internal.

    Its only option is `job`: an `ArchiveJob` as JSON.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return _SCHEMA

    @property
    def _job(self) -> ArchiveJob:
        return ArchiveJob.from_json(self.options["job"])

    def streamReader(self, schema: StructType) -> RangeReader:  # noqa: N802
        return RangeReader(self._job)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ArchiveWriter:  # noqa: N802
        return ArchiveWriter(self._job)


class TaskRanges(InputPartition):  # type: ignore[misc]
    """The ranges that one task archives, the Arrow schema of its files, and their limit."""

    def __init__(self, value: list[OffsetRange], schema: bytes, files_max: int) -> None:
        super().__init__(value)
        self.value: list[OffsetRange] = value
        self.schema = schema
        self.files_max = files_max


class RangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The query's source of offset ranges, planned by `BatchPlanner`.

    The query begins where the table ends, not where a checkpoint does. `latestOffset` raises the
    errors of `BatchPlanner.batch_end`.
    """

    def __init__(self, job: ArchiveJob) -> None:
        self._job = job
        self._final: StreamOffset | None = None

    @cached_property
    def _client(self) -> TopicClient:
        # A plan only asks how large batches are; tasks decide about damaged ones.
        return TopicClient(self._job.bootstrap, client_id="lakelog-archive", keep_damaged=True)

    @cached_property
    def _planner(self) -> BatchPlanner:
        return BatchPlanner(self._job, self._client)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where the table ends."""
        return self._planner.table_end().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of a run that does not follow. Raises as `BatchPlanner.log_end`."""
        self._final = self._planner.log_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = StreamOffset.from_json(start)
        end = self._planner.batch_end(begin, self._final)
        # Spark compares offsets by their text, so an unchanged one is returned as it came.
        return start if end is begin else end.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TaskRanges]:
        begin, target = StreamOffset.from_json(start), StreamOffset.from_json(end)
        tasks = self._planner.tasks(begin, target)
        schema = file_schema(self._job, self._client, tasks).serialize().to_pybytes()
        # Of this batch's tasks, not of the cluster's: a small batch has one, which may then have
        # all files of the commit.
        files_max = max(1, PARTITIONS_MAX // max(1, len(tasks)))
        return [TaskRanges(ranges, schema, files_max) for ranges in tasks]

    def read(self, partition: TaskRanges) -> Iterator[pa.RecordBatch]:
        rows = partition.value
        columns = {
            "topic": pa.array([row.topic for row in rows], pa.string()),
            "partition": pa.array([row.partition for row in rows], pa.int32()),
            "start": pa.array([row.start for row in rows], pa.int64()),
            "end": pa.array([row.end for row in rows], pa.int64()),
            "topic_id": pa.array([self._job.topic_id] * len(rows), pa.string()),
            "leader_epoch": pa.array([row.leader_epoch for row in rows], pa.int32()),
            "schema": pa.array([partition.schema] * len(rows), pa.binary()),
            "files_max": pa.array([partition.files_max] * len(rows), pa.int32()),
        }
        yield pa.RecordBatch.from_pydict(columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the table holds the progress."""

    def stop(self) -> None:
        if "_client" in self.__dict__:
            self._client.close()


@dataclass
class Archived(WriterCommitMessage):  # type: ignore[misc]
    """The result of one task: its ranges, and the files with their rows."""

    query_id: str
    ranges: list[OffsetRange]
    files: WrittenFiles


class ArchiveWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes a Parquet file per task and commits the files of a batch to the table."""

    def __init__(self, job: ArchiveJob) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Archived:
        """Write the records of one task's ranges. Raises as `write_ranges`."""
        try:
            return self._write(iterator)
        finally:
            exempt_modules()

    def _write(self, iterator: Iterator[pa.RecordBatch]) -> Archived:
        rows = [row for batch in iterator for row in batch.to_pylist()]
        schemas = [pa.ipc.read_schema(pa.py_buffer(row.pop("schema"))) for row in rows]
        limits = [row.pop("files_max") for row in rows]
        ranges = [OffsetRange(**row) for row in rows]
        context = TaskContext.get()
        query_id = str(context.getLocalProperty("sql.streaming.queryId"))
        batch = context.getLocalProperty("streaming.sql.batchId")
        # Spark may run a task twice at once: each attempt needs a file of its own. A topic id may
        # begin with an underscore, and Spark and Hive read no file whose name does.
        task = f"{self._job.topic_id}-{batch}-{context.partitionId()}"
        name = f"archived-{task}-{uuid.uuid4().hex}.parquet"
        schema = schemas[0] if schemas else self._job.schema
        files_max = limits[0] if limits else 1
        return Archived(query_id, ranges, write_ranges(self._job, ranges, schema, name, files_max))

    def commit(self, messages: list[Archived | None], batchId: int) -> None:  # noqa: N803
        """Commit the files of a batch to the table; an empty batch is not committed.

        Raises `ProgressConflictError` if another job archived other offsets meanwhile, and the
        other errors of `commit_batch`.
        """
        done = [message for message in messages if message is not None]
        extents = merge_ranges(offset_range for message in done for offset_range in message.ranges)
        if extents:
            from lakelog.tables.archive.commit import commit_batch

            batch = batch_of(self._job, done, batchId, extents)
            commit_batch(self._job.address, batch)
            add_unknown(self._job, [shape for message in done for shape in message.files.unknown])

    def abort(self, messages: list[Archived | None], batchId: int) -> None:  # noqa: N803
        """Remove the files of a batch for which no commit was tried.

        Spark also calls this after a commit that failed or whose process died. That commit may
        still succeed, so its files stay; `commit` removed the files that it could. Spark then
        passes a message of every task, and lacks one only if a task failed before the commit.
        Raises `TableReplacedError` and `OSError`.
        """
        if None in messages:
            from lakelog.tables.archive.commit import abandon_batch

            done = [message.files for message in messages if message]
            abandon_batch(self._job.address, [path for files in done for path in files.paths])
            dead_letters = [files.dead_letters for files in done if files.dead_letters]
            if dead_letters:
                abandon_batch(_dead_letters_of(self._job), dead_letters)


def batch_of(
    job: ArchiveJob, messages: list[Archived], number: int, extents: Mapping[int, Extent]
) -> Batch:
    """Return the batch that the tasks' results make together."""
    from lakelog.tables.archive.commit import Batch
    from lakelog.tables.archive.dead_letters import DeadLetters

    done = [message.files for message in messages]
    lost = [piece for files in done for piece in files.skipped]
    dead_letters = tuple(files.dead_letters for files in done if files.dead_letters)
    refused: dict[int, RefusedCount] = {}
    for files in done:
        for partition, count in files.refusals.counts.items():
            refused[partition] = refused.get(partition, RefusedCount()).plus(count)
    return Batch(
        job.topic_id,
        messages[0].query_id,
        number,
        extents,
        tuple(path for files in done for path in files.paths),
        tuple(Span(piece.partition, piece.start, piece.end) for piece in lost),
        refused,
        tuple(span for files in done for span in files.refusals.named),
        DeadLetters(_dead_letters_of(job), dead_letters) if dead_letters else None,
    )


def _dead_letters_of(job: ArchiveJob) -> TableAddress:
    from lakelog.tables.archive.dead_letters import dead_letters_of

    return dead_letters_of(job.address, job.dead_letters_uuid)
