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
from dataclasses import asdict, dataclass, replace
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
from lakelog.spark.archive.columns import ARROW_SCHEMA, with_null_timestamps
from lakelog.spark.archive.files import write_ranges
from lakelog.spark.archive.partitions import first_extents
from lakelog.spark.archive.progress import Extent, Progress, merge_ranges
from lakelog.spark.broker import Broker
from lakelog.spark.divergence import find_divergences
from lakelog.spark.errors import DataLossError
from lakelog.spark.offsets import StreamOffset, from_items
from lakelog.spark.planning import OffsetRange, limit_offsets, ranges_between, split_ranges

FORMAT = "lakelog-archive"
_SCHEMA = "topic string, partition int, start long, end long, topic_id string, leader_epoch int"
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
    raw_timestamp_id: int
    """Of the table's column for impossible timestamps; 0 if these are errors."""
    uuid: str
    extents: dict[int, Extent]
    """What of each partition the table holds when the query starts."""

    @property
    def address(self) -> TableAddress:
        return TableAddress(self.catalog, self.identifier, self.uuid)

    @property
    def schema(self) -> pa.Schema:
        """Of the files."""
        return (
            with_null_timestamps(self.raw_timestamp_id) if self.raw_timestamp_id else ARROW_SCHEMA
        )

    def to_option(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_option(cls, text: str) -> ArchiveJob:
        value = json.loads(text)
        namespace, name = value.pop("identifier")
        extents = {int(p): Extent(*numbers) for p, numbers in value.pop("extents").items()}
        return cls(identifier=(namespace, name), extents=extents, **value)


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


class LogDivergedError(DataLossError):
    """The log lost records that are archived, and may have others in their place."""


class RangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Offsets to archive. It begins where the table ends, never where a checkpoint does.

    Before each batch the leaders are asked whether the log still has what is archived.
    """

    def __init__(self, job: ArchiveJob) -> None:
        self._job = job
        self._final: StreamOffset | None = None

    @cached_property
    def _broker(self) -> Broker:
        return Broker(self._job.bootstrap, client_id="lakelog-archive")

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        known = Progress(self._job.extents)
        return self._point(known.ends, known.leader_epochs).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._final = self._latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        point = StreamOffset.from_json(start)
        latest = self._final or self._latest()
        # In this order: a log that is cut and grows between the check and the look at its end
        # would get the new epoch without a check.
        self._check_log(point)
        added = self._added(point)
        begin = {**point.offsets.get(self._job.topic, {}), **_starts(added)}
        ranges = ranges_between({self._job.topic: begin}, latest.offsets)
        if not ranges and not added:
            return start
        end = begin
        if ranges:
            most = self._offsets_max(ranges)
            end = limit_offsets({self._job.topic: begin}, latest.offsets, most)[self._job.topic]
        return self._point(end, latest.epochs.get(self._job.topic, {})).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TaskRanges]:
        begin, target = StreamOffset.from_json(start), StreamOffset.from_json(end)
        topic, added = self._job.topic, self._added(begin)
        offsets = {topic: {**begin.offsets.get(topic, {}), **_starts(added)}}
        empty = [
            OffsetRange(topic, p, extent.start, extent.end)
            for p, extent in added.items()
            if target.offsets[topic].get(p) == extent.end
        ]
        pieces = [*split_ranges(ranges_between(offsets, target.offsets), self._job.tasks), *empty]
        epochs = target.epochs.get(topic, {})
        pieces = [replace(each, leader_epoch=epochs.get(each.partition, -1)) for each in pieces]
        return [TaskRanges(group) for group in _deal(pieces, self._job.tasks)]

    def read(self, partition: TaskRanges) -> Iterator[pa.RecordBatch]:
        rows = partition.value
        columns = {
            "topic": pa.array([each.topic for each in rows], pa.string()),
            "partition": pa.array([each.partition for each in rows], pa.int32()),
            "start": pa.array([each.start for each in rows], pa.int64()),
            "end": pa.array([each.end for each in rows], pa.int64()),
            "topic_id": pa.array([self._job.topic_id] * len(rows), pa.string()),
            "leader_epoch": pa.array([each.leader_epoch for each in rows], pa.int32()),
        }
        yield pa.RecordBatch.from_pydict(columns)

    def commit(self, end: dict[str, Any]) -> None:
        """The table is the progress."""

    def stop(self) -> None:
        if "_broker" in self.__dict__:
            self._broker.close()

    def _point(self, offsets: dict[int, int], epochs: dict[int, int]) -> StreamOffset:
        topic = self._job.topic
        return StreamOffset({topic: offsets}, {topic: self._job.topic_id}, {topic: epochs})

    def _check_log(self, point: StreamOffset) -> None:
        diverged = find_divergences(self._broker, point)
        if diverged:
            raise LogDivergedError("; ".join(str(each) for each in diverged))

    def _latest(self) -> StreamOffset:
        topic = self._job.topic
        meta = self._broker.describe([topic])[topic]
        if meta.topic_id != self._job.topic_id:
            raise DataLossError(f"topic {topic!r} was deleted and created again")
        places = self._broker.latest_places([(topic, p) for p in meta.partitions])
        offsets = from_items({key: place.offset for key, place in places.items()})
        epochs = {p: each.leader_epoch for (_, p), each in places.items() if each.leader_epoch >= 0}
        return self._point(offsets[topic], epochs)

    def _added(self, point: StreamOffset) -> dict[int, Extent]:
        """Partitions that the topic has got since `point`."""
        topic = self._job.topic
        known = Progress({p: Extent(at, at) for p, at in point.offsets.get(topic, {}).items()})
        partitions = self._broker.describe([topic])[topic].partitions
        return first_extents(self._broker, topic, partitions, known, skip_lost=self._job.skip_lost)

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
    skipped: list[OffsetRange]


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
            self._job.schema,
            f"{self._job.location}/data/{name}",
            self._job.catalog,
            skip_lost=self._job.skip_lost,
        )
        return Archived(query_id, ranges, written.path, written.rows, written.skipped)

    def commit(self, messages: list[Archived | None], batchId: int) -> None:  # noqa: N803
        """Raises `ProgressConflictError` when another job archived something else meanwhile."""
        done = [message for message in messages if message is not None]
        extents = merge_ranges(each for message in done for each in message.ranges)
        if extents:
            from lakelog.spark.archive.commit import Batch, commit_batch
            from lakelog.spark.archive.skipped import Skipped

            skipped = [
                Skipped(lost.partition, lost.start, lost.end)
                for message in done
                for lost in message.skipped
            ]
            query_id, paths = done[0].query_id, _paths(done)
            topic_id = self._job.topic_id
            batch = Batch(topic_id, query_id, batchId, extents, paths, tuple(skipped))
            commit_batch(self._job.address, batch)

    def abort(self, messages: list[Archived | None], batchId: int) -> None:  # noqa: N803
        """Also follows a commit that failed or whose process died, and that may still land.

        Then no message is missing, and the files stay; `commit` has removed what it could.
        """
        if None in messages:
            from lakelog.spark.archive.commit import abandon_batch

            abandon_batch(self._job.address, _paths([each for each in messages if each]))


def _starts(extents: dict[int, Extent]) -> dict[int, int]:
    return {partition: extent.start for partition, extent in extents.items()}


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
