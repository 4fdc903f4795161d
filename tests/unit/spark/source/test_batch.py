"""Plans of batch queries: which tasks read which offsets.

Filters of a batch query: offsets that are left out, and never one too many.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from lakelog.spark.source import batch
from lakelog.spark.source import batch as module
from lakelog.spark.source.batch import (
    Pruning,
    RangePartition,
    open_planner,
    plan,
    planned,
    read_planned,
    reading_client,
)
from lakelog.spark.source.options import SourceOptions, parse_source_options
from lakelog.spark.source.readers import batch_reader, schema_of
from lakelog.tables.hybrid.archives import ANY_TIME, PlannedRange, Times
from lakelog.tables.hybrid.client import HybridClient
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError, TopicMissingError
from lakelog.tables.topic.offsets import OffsetRange, StreamOffset
from unit.spark.source.source_log import EPOCH, Log

OPTIONS = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}
END = StreamOffset({"t": {0: 10, 1: 5}}, {"t": "id"}, {"t": {0: 3}})


def options(**given: str) -> SourceOptions:
    return parse_source_options({**OPTIONS, **given}, streaming=False)


def ranges(found: list[RangePartition]) -> list[OffsetRange | None]:
    return [None if task.value is None else task.value.offsets for task in found]


def tasks_from(start: StreamOffset, **given: str) -> list[RangePartition]:
    return plan(cast("TopicClient", Log(t=[10, 5])), start, END, options(**given))


def tasks(log: Log, monkeypatch: pytest.MonkeyPatch, **given: str) -> list[OffsetRange | None]:
    """Return the ranges of a query's tasks."""
    monkeypatch.setattr(batch, "open_planner", lambda _: log)
    values = {**OPTIONS, **given}
    return ranges(batch_reader(values, schema_of(values)).partitions())


def test_each_range_has_the_identity_of_its_topic_and_log() -> None:
    start = StreamOffset({"t": {0: 4, 1: 5}})
    assert ranges(tasks_from(start)) == [OffsetRange("t", 0, 4, 10, topic_id="id", leader_epoch=3)]


def test_a_plan_without_records_has_one_task_that_reads_nothing() -> None:
    """Spark cannot run a query without tasks."""
    (task,) = tasks_from(END)
    assert task.value is None
    assert list(read_planned(options(), schema_of(OPTIONS), None)) == []


def test_min_partitions_splits_ranges_without_gap_or_overlap() -> None:
    found = ranges(tasks_from(StreamOffset(), minPartitions="6"))
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


ENDS = {"a": [10, 20, 30], "b": [5]}
START = StreamOffset({"a": {0: 0, 1: 0, 2: 0}, "b": {0: 2}}, {"a": "a-id"})
PRUNING_END = StreamOffset({"a": {0: 10, 1: 20, 2: 30}, "b": {0: 5}}, {"a": "a-id"}, {"a": {0: 4}})
ALL = {("a", 0): (0, 10), ("a", 1): (0, 20), ("a", 2): (0, 30), ("b", 0): (2, 5)}


def at(ms: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def narrowed(*filters: Filter) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the offsets to read: first, and the one after the last."""
    client = cast("TopicClient", Log(**ENDS))
    start, end = Pruning(filters).narrow(client, START, PRUNING_END)
    assert (end.topic_ids, end.epochs) == (PRUNING_END.topic_ids, PRUNING_END.epochs)
    return {
        (topic, p): (start.offsets[topic][p], last)
        for topic, partitions in end.offsets.items()
        for p, last in partitions.items()
        if start.offsets[topic][p] < last
    }


def test_without_filters_everything_is_read() -> None:
    assert narrowed() == ALL


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (EqualTo(("partition",), 1), {("a", 1)}),
        (EqualNullSafe(("partition",), 1), {("a", 1)}),
        (In(("partition",), (0, 2, 9)), {("a", 0), ("a", 2), ("b", 0)}),
        (GreaterThan(("partition",), 1), {("a", 2)}),
        (LessThanOrEqual(("partition",), 0), {("a", 0), ("b", 0)}),
        (Not(EqualTo(("partition",), 0)), {("a", 1), ("a", 2)}),
        (Not(In(("partition",), (0, 1))), {("a", 2)}),
        (EqualTo(("topic",), "b"), {("b", 0)}),
        (StringStartsWith(("topic",), "b"), {("b", 0)}),
        (StringEndsWith(("topic",), "b"), {("b", 0)}),
        (StringContains(("topic",), "b"), {("b", 0)}),
        (Not(EqualTo(("topic",), "a")), {("b", 0)}),
    ],
)
def test_partitions_that_no_row_can_come_from_are_left_out(
    given: Filter, kept: set[tuple[str, int]]
) -> None:
    assert narrowed(given) == {key: ALL[key] for key in kept}


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([EqualTo(("offset",), 4)], (4, 5)),
        ([GreaterThan(("offset",), 4), LessThan(("offset",), 7)], (5, 7)),
        ([GreaterThanOrEqual(("offset",), 4), LessThanOrEqual(("offset",), 7)], (4, 8)),
        ([In(("offset",), (7, 3, 5))], (3, 8)),
        ([Not(EqualTo(("offset",), 4))], (0, 10)),
        ([Not(GreaterThan(("offset",), 4))], (0, 10)),
        ([IsNotNull(("offset",)), GreaterThan(("value",), 8)], (0, 10)),
    ],
)
def test_offsets_are_bounded(filters: list[Filter], bounds: tuple[int, int]) -> None:
    assert narrowed(EqualTo(("partition",), 0), EqualTo(("topic",), "a"), *filters) == {
        ("a", 0): bounds
    }


@pytest.mark.parametrize(
    ("given", "first"),
    [
        (GreaterThanOrEqual(("timestamp",), at(7)), 7),
        (GreaterThan(("timestamp",), at(7.25)), 7),
        (EqualTo(("timestamp",), at(7)), 7),
        (In(("timestamp",), (at(9), at(7))), 7),
        (LessThan(("timestamp",), at(7)), 0),
        (GreaterThan(("timestamp",), at(-1)), 0),
        (GreaterThan(("timestamp",), at(7).replace(tzinfo=None)), 0),
        (Not(LessThan(("timestamp",), at(7))), 0),
    ],
)
def test_records_before_the_first_one_of_a_time_are_left_out(given: Filter, first: int) -> None:
    """Those after it may have any timestamp. The stand-in's record n has the timestamp n."""
    assert narrowed(given, EqualTo(("partition",), 0), EqualTo(("topic",), "a")) == {
        ("a", 0): (first, 10)
    }


def test_a_partition_without_a_record_of_the_time_is_not_read() -> None:
    assert narrowed(GreaterThanOrEqual(("timestamp",), at(12))) == {
        ("a", 1): (12, 20),
        ("a", 2): (12, 30),
    }


def test_timestamps_have_a_first_and_a_last_one_for_files() -> None:
    assert Pruning().times() == ANY_TIME
    time = ("timestamp",)
    filters = (GreaterThan(time, at(5)), GreaterThanOrEqual(time, at(7)), LessThan(time, at(20.5)))
    assert Pruning(filters).times() == Times(7000, 20500)
    assert Pruning((EqualTo(time, at(5)),)).times() == Times(5000, 5000)
    assert Pruning((In(time, (at(5), at(9))), Not(LessThan(time, at(2))))).times() == Times(
        5000, 9000
    )
    local = datetime(2024, 1, 1)  # noqa: DTZ001 - its zone is unknown
    assert Pruning((LessThan(time, local), EqualTo(("offset",), 3))).times() == ANY_TIME


def query(**given: str) -> SourceOptions:
    fixed = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}
    return parse_source_options({**fixed, **given}, streaming=False)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TopicClient]]:
    """In a worker: the clients that were closed."""
    found: list[TopicClient] = []
    monkeypatch.setattr(module, "is_worker", lambda: True)
    monkeypatch.setattr(TopicClient, "close", lambda client: found.append(client))
    yield found
    module._kept.clear()


def test_tables_are_read_unless_an_option_excludes_them() -> None:
    with open_planner(query()) as client:
        assert isinstance(client, HybridClient)
    with open_planner(query(archive="none")) as client:
        assert not isinstance(client, HybridClient)


def test_a_worker_keeps_its_client_for_the_next_task(closed: list[TopicClient]) -> None:
    with reading_client(query()) as first:
        pass
    # Other positions of the same cluster, as in the next batch.
    with reading_client(query(startingOffsets="latest")) as second:
        pass
    assert second is first
    assert not closed


def test_a_worker_keeps_one_client_at_most(closed: list[TopicClient]) -> None:
    with reading_client(query()) as outer, reading_client(query()) as inner:
        assert inner is not outer
    assert closed == [inner]

    with reading_client(query(**{"kafka.isolation.level": "read_uncommitted"})) as other:
        assert other is not outer
    assert closed == [inner, outer]


def test_a_client_is_closed_after_an_error_and_after_an_unfinished_read(
    closed: list[TopicClient],
) -> None:
    found: list[TopicClient] = []

    def read() -> Iterator[int]:
        with reading_client(query()) as client:
            found.append(client)
            yield 1
            raise ConnectionError

    rows = read()
    next(rows)
    with pytest.raises(ConnectionError):
        next(rows)
    unfinished = read()
    next(unfinished)
    unfinished.close()  # type: ignore[attr-defined]
    assert closed == found
    assert len(found) == 2


def test_other_processes_keep_no_client(
    closed: list[TopicClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_worker", lambda: False)
    with reading_client(query()) as client:
        pass
    assert closed == [client]


def test_a_client_without_tables_leaves_ranges_as_they_are() -> None:
    log = cast("TopicClient", None)
    assert planned(log, [OffsetRange("t", 0, 0, 5)]) == [PlannedRange(OffsetRange("t", 0, 0, 5))]
