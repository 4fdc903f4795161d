"""The streaming job of the archive: a source of offset ranges and a sink that archives them.

Rows carry no data, only what to fetch, so nothing but a few numbers goes through Spark and the
batch's exact ends survive gaps in the offsets.

Where things run: the source object lives in one planning process; tasks run `write`; `commit` and
`abort` run in a process of their own that may have been started for this one call.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

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

from lakelog.spark.archive.address import TableAddress
from lakelog.spark.archive.columns import ARROW_SCHEMA
from lakelog.spark.archive.files import write_ranges
from lakelog.spark.archive.progress import merge_ranges
from lakelog.spark.broker import Broker
from lakelog.spark.errors import DataLossError
from lakelog.spark.offsets import Offsets, StreamOffset, items
from lakelog.spark.planning import OffsetRange, limit_offsets, ranges_between, split_ranges

FORMAT = "lakelog-archive"
_SCHEMA = "topic string, partition int, start long, end long, topic_id string"
_SAMPLED_MAX = 16


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """What the job needs to know, passed through the data source's only option, as JSON."""

    bootstrap: str
    topic: str
    topic_id: str
    catalog: dict[str, str]
    identifier: tuple[str, str]
    location: str
    batch_bytes: int
    tasks: int
    skip_lost: bool
    ends: dict[int, int]
    """The table's, when the query starts: the first offset of each partition to archive."""

    @property
    def address(self) -> TableAddress:
        return TableAddress(self.catalog, self.identifier)

    def to_option(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_option(cls, text: str) -> ArchiveJob:
        value = json.loads(text)
        namespace, name = value.pop("identifier")
        ends = {int(partition): end for partition, end in value.pop("ends").items()}
        return cls(identifier=(namespace, name), ends=ends, **value)


class ArchiveSource(DataSource):  # type: ignore[misc]
    """Registered by `sync_topic` under a name that is not for users."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return _SCHEMA

    @property
    def _job(self) -> ArchiveJob:
        return ArchiveJob.from_option(self.options["job"])

    def streamReader(self, schema: StructType) -> RangeReader:  # noqa: N802
        return RangeReader(self._job)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ArchiveWriter:  # noqa: N802
        return ArchiveWriter(self._job)


class TaskRanges(InputPartition):  # type: ignore[misc]
    """The ranges that one task archives into one file."""

    def __init__(self, value: list[OffsetRange]) -> None:
        super().__init__(value)
        self.value: list[OffsetRange] = value


class RangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Offsets to archive. It begins where the table ends, never where a checkpoint does."""

    def __init__(self, job: ArchiveJob) -> None:
        self._job = job
        self._final: Offsets | None = None

    @cached_property
    def _broker(self) -> Broker:
        return Broker(self._job.bootstrap, client_id="lakelog-archive")

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._point({self._job.topic: dict(self._job.ends)})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._final = self._latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = self._complete(StreamOffset.from_json(start).offsets)
        latest = self._final or self._latest()
        if not self._job.skip_lost:
            _check_not_shorter(begin, latest)
        ranges = ranges_between(begin, latest)
        if not ranges:
            return start
        return self._point(limit_offsets(begin, latest, self._offsets_max(ranges)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TaskRanges]:
        begin = self._complete(StreamOffset.from_json(start).offsets)
        ranges = ranges_between(begin, StreamOffset.from_json(end).offsets)
        pieces = split_ranges(ranges, self._job.tasks)
        return [TaskRanges(group) for group in _deal(pieces, self._job.tasks)]

    def read(self, partition: TaskRanges) -> Iterator[pa.RecordBatch]:
        rows = partition.value
        columns = {
            "topic": pa.array([each.topic for each in rows], pa.string()),
            "partition": pa.array([each.partition for each in rows], pa.int32()),
            "start": pa.array([each.start for each in rows], pa.int64()),
            "end": pa.array([each.end for each in rows], pa.int64()),
            "topic_id": pa.array([self._job.topic_id] * len(rows), pa.string()),
        }
        yield pa.RecordBatch.from_pydict(columns)

    def commit(self, end: dict[str, Any]) -> None:
        """The table is the progress."""

    def stop(self) -> None:
        if "_broker" in self.__dict__:
            self._broker.close()

    def _point(self, offsets: Offsets) -> dict[str, Any]:
        return StreamOffset(offsets, {self._job.topic: self._job.topic_id}).to_json()

    def _latest(self) -> Offsets:
        topic = self._job.topic
        meta = self._broker.describe([topic])[topic]
        if meta.topic_id != self._job.topic_id:
            raise DataLossError(f"topic {topic!r} was deleted and created again")
        latest = self._broker.latest([(topic, partition) for partition in meta.partitions])
        return {topic: {partition: end for (_, partition), end in latest.items()}}

    def _complete(self, offsets: Offsets) -> Offsets:
        """With the first offsets of partitions that were never archived."""
        topic = self._job.topic
        known = offsets.get(topic, {})
        meta = self._broker.describe([topic])[topic]
        unknown = [(topic, partition) for partition in meta.partitions if partition not in known]
        earliest = self._broker.earliest(unknown)
        return {topic: {**known, **{partition: at for (_, partition), at in earliest.items()}}}

    def _offsets_max(self, ranges: list[OffsetRange]) -> int:
        """How many offsets make a batch of about `batch_bytes`, judged by what is waiting."""
        largest = sorted(ranges, key=lambda each: each.size, reverse=True)[:_SAMPLED_MAX]
        first = self._broker.earliest([(each.topic, each.partition) for each in largest])
        weights = {each: self._weight(each, first[each.topic, each.partition]) for each in largest}
        offsets = sum(each.size for each in largest)
        average = sum(each.size * weight for each, weight in weights.items()) / offsets
        return max(1, int(self._job.batch_bytes / max(average, 1.0)))

    def _weight(self, each: OffsetRange, first: int) -> float:
        """Bytes for each offset; what retention has removed weighs nothing."""
        start = min(max(each.start, first), each.end)
        return self._broker.bytes_per_offset(each.topic, each.partition, start, each.end)


@dataclass
class Archived(WriterCommitMessage):  # type: ignore[misc]
    """What one task archived."""

    query_id: str
    ranges: list[OffsetRange]
    path: str | None
    rows: int


class ArchiveWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, job: ArchiveJob) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Archived:
        ranges = [OffsetRange(**row) for batch in iterator for row in batch.to_pylist()]
        context = TaskContext.get()
        query_id = str(context.getLocalProperty("sql.streaming.queryId"))
        batch = context.getLocalProperty("streaming.sql.batchId")
        name = f"{self._job.topic_id}-{batch}-{context.partitionId()}-{uuid.uuid4().hex}.parquet"
        written = write_ranges(
            self._job.bootstrap,
            ranges,
            ARROW_SCHEMA,
            f"{self._job.location}/data/{name}",
            self._job.catalog,
            skip_lost=self._job.skip_lost,
        )
        if written is None:
            return Archived(query_id, ranges, None, 0)
        return Archived(query_id, ranges, written.path, written.rows)

    def commit(self, messages: list[Archived | None], batchId: int) -> None:  # noqa: N803
        """Raises `ProgressConflictError` when another job archived something else meanwhile."""
        done = [message for message in messages if message is not None]
        ranges = merge_ranges(each for message in done for each in message.ranges)
        if ranges:
            from lakelog.spark.archive.commit import Batch, commit_batch

            batch = Batch(self._job.topic_id, done[0].query_id, batchId, ranges, _paths(done))
            commit_batch(self._job.address, batch)

    def abort(self, messages: list[Archived | None], batchId: int) -> None:  # noqa: N803
        """Also follows a commit that failed or whose process died, so the table is asked."""
        done = [message for message in messages if message is not None]
        from lakelog.spark.archive.commit import abandon_batch

        abandon_batch(self._job.address, _paths(done))


def _check_not_shorter(archived: Offsets, latest: Offsets) -> None:
    """Raises `DataLossError` when the log ends before what is archived: a broker lost records in a
    crash, and new ones get offsets that the table already holds."""
    for (topic, partition), end in items(latest):
        known = archived.get(topic, {}).get(partition, 0)
        if known > end:
            raise DataLossError(
                f"{topic}-{partition} ends at {end}, but is archived up to {known}: the log has "
                "lost records, and those that took their offsets would be missing from the table"
            )


def _paths(messages: list[Archived]) -> tuple[str, ...]:
    return tuple(message.path for message in messages if message.path is not None)


def _deal(ranges: list[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """Groups of about equal size for at most `tasks` tasks, each in order of partition."""
    groups: list[list[OffsetRange]] = [[] for _ in range(min(tasks, len(ranges)))]
    sizes = [0] * len(groups)
    for each in sorted(ranges, key=lambda each: each.size, reverse=True):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(each)
        sizes[smallest] += each.size
    return [sorted(group, key=lambda each: (each.partition, each.start)) for group in groups]
