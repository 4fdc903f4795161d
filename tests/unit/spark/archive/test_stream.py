from __future__ import annotations

from collections.abc import Iterable

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lakelog.spark.archive.stream import ArchiveJob, RangeReader
from lakelog.spark.broker import TopicMeta
from lakelog.spark.errors import DataLossError
from lakelog.spark.offsets import TopicPartition


class Log:
    """Where a broker's partitions begin and end."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.ends = ends

    def describe(self, names: Iterable[str]) -> dict[str, TopicMeta]:
        return {name: TopicMeta(name, "id", tuple(self.ends)) for name in names}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {key: self.ends[key[1]] for key in partitions}

    def bytes_per_offset(self, topic: str, partition: int, start: int, end: int) -> float:
        return 1.0


def next_end(ends: dict[int, int], log: Log, *, skip_lost: bool = False) -> dict[str, int]:
    """Where the first batch ends, of a table that has `ends` archived."""
    job = ArchiveJob(
        bootstrap="b:1",
        topic="t",
        topic_id="id",
        catalog={},
        identifier=("lakelog", "t"),
        location="",
        batch_bytes=1000,
        tasks=2,
        skip_lost=skip_lost,
        ends=ends,
    )
    reader = RangeReader(job)
    reader.__dict__["_broker"] = log
    return dict(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["t"])


def test_a_batch_goes_from_the_tables_ends_to_the_logs() -> None:
    assert next_end({0: 5, 1: 7}, Log({0: 9, 1: 7, 2: 3})) == {"0": 9, "1": 7, "2": 3}


def test_a_log_that_ends_before_the_table_is_not_taken_for_an_idle_one() -> None:
    with pytest.raises(DataLossError, match="t-1 ends at 6, but is archived up to 7"):
        next_end({0: 5, 1: 7}, Log({0: 9, 1: 6}))


def test_unless_lost_records_are_accepted() -> None:
    assert next_end({0: 5, 1: 7}, Log({0: 9, 1: 6}), skip_lost=True)["0"] == 9
