from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lakelog.spark.archive import stream
from lakelog.spark.archive.stream import ArchiveSource, ArchiveWriter, RangeReader
from lakelog.tables.archive.progress import ArchiveJob, Extent
from lakelog.tables.iceberg.columns import ARROW_SCHEMA
from lakelog.tables.topic.offsets import OffsetRange, StreamOffset
from unit.tables.archive_log import EPOCH, Log


def reader(log: Log, *, tasks: int = 2, file_bytes: int = 2, topic_id: str = "id") -> RangeReader:
    """A reader as Spark makes it, for a table that has offsets [0, 5) of partition 0."""
    job = ArchiveJob(
        bootstrap="b:1",
        topic="t",
        topic_id=topic_id,
        catalog={},
        identifier=("lakelog", "t"),
        location="",
        batch_bytes=1000,
        tasks=tasks,
        raw_timestamp_id=0,
        skip_lost=False,
        uuid="",
        extents={0: Extent(0, 5, EPOCH)},
        file_bytes=file_bytes,
    )
    source = ArchiveSource({"job": job.to_json()})
    found = source.streamReader(source.schema())
    found.__dict__["_client"] = log
    return found


def test_the_rows_of_the_query_are_the_ranges_of_its_tasks() -> None:
    source = reader(Log({0: 9}))
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    assert StreamOffset.from_json(end).offsets == {"t": {0: 9}}

    tasks = source.partitions(start, end)
    rows = [row for task in tasks for batch in source.read(task) for row in batch.to_pylist()]
    schemas = [pa.ipc.read_schema(pa.py_buffer(row.pop("schema"))) for row in rows]
    assert schemas == [ARROW_SCHEMA] * 2
    assert [row.pop("files_max") for row in rows] == [50, 50]
    assert [OffsetRange(**row) for row in rows] == [
        OffsetRange("t", 0, 5, 7, "id", EPOCH),
        OffsetRange("t", 0, 7, 9, "id", EPOCH),
    ]


def test_an_idle_log_gives_the_offset_that_spark_knows() -> None:
    source = reader(Log({0: 5}))
    start = source.initialOffset()
    assert source.latestOffset(start, ReadAllAvailable()) is start


def test_a_query_that_ends_reads_to_where_the_log_ended_when_it_was_started() -> None:
    source = reader(log := Log({0: 9}))
    source.prepareForTriggerAvailableNow()
    log.ends = {0: 20}
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    assert StreamOffset.from_json(end).offsets == {"t": {0: 9}}


def test_a_small_batch_may_have_all_files_of_a_commit_in_one_task() -> None:
    """Also in a cluster of more tasks than a commit may have files."""
    source = reader(Log({0: 9}), tasks=128, file_bytes=1000)
    start = source.initialOffset()
    (task,) = source.partitions(start, source.latestOffset(start, ReadAllAvailable()))
    assert task.files_max == 100


def test_a_worker_exempts_its_modules_from_collection_after_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(stream, "exempt_modules", lambda: calls.append("exempted"))
    monkeypatch.setattr(ArchiveWriter, "_write", lambda self, rows: calls.append("written"))
    ArchiveWriter(reader(Log({0: 5}))._job).write(iter([]))
    assert calls == ["written", "exempted"]


@pytest.mark.parametrize("topic_id", ["_yHoW1R4Sd2N6eO8v0bK3A", "zyHoW1R4Sd2N6eO8v0bK3A"])
def test_spark_reads_the_files_of_each_topic_by_name(
    monkeypatch: pytest.MonkeyPatch, topic_id: str
) -> None:
    """Readers of plain Parquet hide files whose names begin with an underscore or a dot."""
    names: list[str] = []
    monkeypatch.setattr(stream, "write_ranges", lambda *words: names.append(words[3]))
    context = TaskContext(localProperties={"streaming.sql.batchId": "7"})
    monkeypatch.setattr(TaskContext, "_taskContext", context)
    ArchiveWriter(reader(Log({0: 5}), topic_id=topic_id)._job).write(iter([]))
    (name,) = names
    assert name[0].isalpha()
    assert topic_id in name
