"""Plans of batch queries: which tasks read which offsets."""

from __future__ import annotations

from typing import cast

import pytest

from lakelog.spark.source import batch
from lakelog.spark.source.batch import RangePartition, plan
from lakelog.spark.source.joined import read_planned
from lakelog.spark.source.options import SourceOptions, parse_source_options
from lakelog.spark.source.readers import batch_reader, schema_of
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError, TopicMissingError
from lakelog.tables.topic.offsets import StreamOffset
from lakelog.tables.topic.ranges import OffsetRange
from unit.spark.source.source_log import EPOCH, Log

OPTIONS = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}
END = StreamOffset({"t": {0: 10, 1: 5}}, {"t": "id"}, {"t": {0: 3}})


def options(**given: str) -> SourceOptions:
    return parse_source_options({**OPTIONS, **given}, streaming=False)


def ranges(found: list[RangePartition]) -> list[OffsetRange | None]:
    return [None if task.value is None else task.value.offsets for task in found]


def planned(start: StreamOffset, **given: str) -> list[RangePartition]:
    return plan(cast("TopicClient", Log(t=[10, 5])), start, END, options(**given))


def tasks(log: Log, monkeypatch: pytest.MonkeyPatch, **given: str) -> list[OffsetRange | None]:
    """Return the ranges of a query's tasks."""
    monkeypatch.setattr(batch, "open_planner", lambda _: log)
    values = {**OPTIONS, **given}
    return ranges(batch_reader(values, schema_of(values)).partitions())


def test_each_range_has_the_identity_of_its_topic_and_log() -> None:
    start = StreamOffset({"t": {0: 4, 1: 5}})
    assert ranges(planned(start)) == [OffsetRange("t", 0, 4, 10, topic_id="id", leader_epoch=3)]


def test_a_plan_without_records_has_one_task_that_reads_nothing() -> None:
    """Spark cannot run a query without tasks."""
    (task,) = planned(END)
    assert task.value is None
    assert list(read_planned(options(), schema_of(OPTIONS), None)) == []


def test_min_partitions_splits_ranges_without_gap_or_overlap() -> None:
    found = ranges(planned(StreamOffset(), minPartitions="6"))
    covered = [(e.partition, at) for e in found if e for at in range(e.start, e.end)]
    assert len(found) == 6
    assert covered == [(0, at) for at in range(10)] + [(1, at) for at in range(5)]


def test_a_query_reads_between_its_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(t=[10, 5])
    assert tasks(log, monkeypatch, startingTimestamp="2", endingTimestamp="5") == [
        OffsetRange("t", 0, 2, 5, "t-id", EPOCH),
        OffsetRange("t", 1, 2, 5, "t-id", EPOCH),
    ]
    assert log.is_closed


def test_a_query_of_a_missing_topic_fails_when_it_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(other=[1])
    with pytest.raises(TopicMissingError, match="topic 't' does not exist"):
        tasks(log, monkeypatch)
    assert log.is_closed


def test_a_start_beyond_the_log_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"startingOffsets": '{"t": {"0": 50}}'}
    with pytest.raises(DataLossError, match=r"t-0.*failOnDataLoss=false"):
        tasks(Log(t=[10]), monkeypatch, **given)
    assert tasks(Log(t=[10]), monkeypatch, **given, failOnDataLoss="false") == [None]
