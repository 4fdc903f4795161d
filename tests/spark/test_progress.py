"""Streaming queries as consumer groups, with their lag."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_process import LAKELOG
from lakelog.client.admin import Admin
from lakelog.spark import publish_progress
from lakelog.spark.progress import ProgressPublisher
from spark.queries import Stream
from spark.topics import MakeTopic, produce
from waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]


@pytest.fixture
def publisher(spark: SparkSession) -> Iterator[ProgressPublisher]:
    listener = publish_progress(spark)
    yield listener
    listener.stop()


def described(bootstrap: str, group: str) -> dict[int, dict[str, Any]]:
    """Return the partitions of `lakelog group describe`."""
    command = [LAKELOG, "group", "describe", group, "-b", bootstrap, "-f", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    [group_row] = json.loads(done.stdout)
    return {row["partition"]: row for row in group_row["offsets"]}


def test_a_query_is_a_group_with_its_lag_in_records_and_seconds(
    spark: SparkSession,
    bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    publisher: ProgressPublisher,
) -> None:
    topic = make_topic(25)
    stream = Stream(spark, bootstrap, tmp_path, subscribe=topic, groupIdPrefix="team")
    stream.run()
    group = f"team-{stream.progress[-1].id}"
    rows = eventually(lambda: described_if_known(bootstrap, group), 60, "the group")
    assert [row["committed_offset"] for row in rows.values()] == [9, 8, 8]
    assert all((row["lag"], row["lag_seconds"]) == (0, 0.0) for row in rows.values())

    produce(bootstrap, topic, range(100, 104))
    rows = described(bootstrap, group)
    assert [row["lag"] for row in rows.values()] == [1, 2, 1]
    assert all(row["lag_seconds"] > 3000 for row in rows.values()), "the records are an hour old"


def test_a_running_query_has_no_lag_while_it_is_idle(
    spark: SparkSession,
    bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    publisher: ProgressPublisher,
) -> None:
    """Spark calls `commit` of a source only with the next batch, which may never come."""
    topic, group = make_topic(25), f"idle-{tmp_path.name}"
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.group.id": group}
    reader = spark.readStream.format("lakelog").options(**options, startingOffsets="earliest")
    writer = reader.load().writeStream.format("noop").trigger(processingTime="200 milliseconds")
    query = writer.option("checkpointLocation", str(tmp_path)).start()

    def is_idle_at(total: int) -> bool:
        with Admin(bootstrap) as admin:
            lags = admin.groups.lag(group).values()
        assert query.isActive
        committed = sum(lag.committed or 0 for lag in lags)
        return committed == total and all(lag.records == 0 for lag in lags)

    try:
        eventually(lambda: is_idle_at(25), 60, "the first batch in the group")
        produce(bootstrap, topic, range(100, 104))
        eventually(lambda: is_idle_at(29), 60, "the last batch in the group")
    finally:
        query.stop()


def described_if_known(bootstrap: str, group: str) -> dict[int, dict[str, Any]] | None:
    with Admin(bootstrap) as admin:
        known = admin.groups.offsets(group)
    return described(bootstrap, group) if known else None


def test_two_sources_of_one_topic_have_two_groups(
    spark: SparkSession,
    bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    publisher: ProgressPublisher,
) -> None:
    topic = make_topic(9)

    def source(start: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        reader = spark.readStream.format("lakelog").options(**options, startingOffsets=start)
        return reader.option("kafka.group.id", f"pair-{topic}").load()

    both = source("earliest").union(source("latest"))
    query = (
        both.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with Admin(bootstrap) as admin:
        for index in (0, 1):
            group = f"pair-{topic}-{index}"
            eventually(partial(admin.groups.offsets, group), 60, group)
            assert [lag.records for lag in admin.groups.lag(group).values()] == [0, 0, 0]
