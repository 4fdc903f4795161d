"""Readers and the archive after retention removed records that they have not read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from broker_process import BrokerProcess
from lakelog.client.admin import Admin, ResourceType
from lakelog.client.offsets import EARLIEST, LATEST
from lakelog.spark.archive.sync import SyncError, sync_topic
from spark.queries import Stream, read, values
from spark.topics import MakeTopic, produce
from waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

QUICK_RETENTION = {"log.retention.check.interval.ms": "50", "log.segment.delete.delay.ms": "0"}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("retention")
    with BrokerProcess(folder / "data", settings=QUICK_RETENTION) as broker:
        yield broker.bootstrap
        broker.stop()


def lose_everything(bootstrap: str, topic: str) -> None:
    """Retention removes all records there are; those produced afterwards stay."""
    partitions = [(topic, partition) for partition in range(3)]
    with Admin(bootstrap) as admin:
        admin.configs.alter(ResourceType.TOPIC, topic, {"retention.ms": "1000"})

        def is_empty() -> bool:
            first = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
            end = admin.list_offsets(dict.fromkeys(partitions, LATEST))
            return all(first[each].offset == end[each].offset for each in partitions)

        eventually(is_empty, what="retention")
        admin.configs.alter(ResourceType.TOPIC, topic, {"retention.ms": "-1"})


@pytest.fixture
def trimmed(bootstrap: str, make_topic: MakeTopic) -> str:
    """Return a topic whose partitions hold the offsets [10, 15) of [0, 15)."""
    topic = make_topic(30)
    lose_everything(bootstrap, topic)
    produce(bootstrap, topic, range(30, 45))
    return topic


def test_a_batch_reports_lost_records_or_skips_them(
    spark: SparkSession, spark_log: Path, bootstrap: str, trimmed: str
) -> None:
    left = sorted(f"v{i}" for i in range(30, 45))
    assert values(read(spark, bootstrap, subscribe=trimmed)) == left

    before = json.dumps({trimmed: {"0": 10, "1": 3, "2": 10}})
    given: dict[str, Any] = {"subscribe": trimmed, "startingOffsets": before}
    lost = rf"{trimmed}-1 \[3, 15\): the log holds only \[10, 15\)"
    with pytest.raises(PySparkException, match=rf"{lost}\. Set the option failOnDataLoss=false"):
        read(spark, bootstrap, **given).collect()
    assert values(read(spark, bootstrap, failOnDataLoss=False, **given)) == left
    # Java passes on what its Python workers say, in its own time.
    told = f"records are lost: {trimmed}-1 [3, 15)"
    eventually(lambda: told in spark_log.read_text(), what="a warning")


def test_a_stream_reports_lost_records_or_continues_at_the_earliest(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(30)
    stream = Stream(spark, bootstrap, tmp_path, subscribe=topic)
    assert len(stream.run()) == 30
    produce(bootstrap, topic, range(30, 36))
    lose_everything(bootstrap, topic)
    produce(bootstrap, topic, range(36, 39))

    lost = rf"{topic}-\d \[10, 13\): the log holds only \[12, 13\)\. Set the option failOnDataLoss"
    with pytest.raises(StreamingQueryException, match=lost):
        stream.run()

    stream.options["failOnDataLoss"] = "false"
    assert stream.run() == ["v36", "v37", "v38"]
    stream.options["failOnDataLoss"] = "true"
    produce(bootstrap, topic, range(39, 40))
    assert stream.run() == ["v39"]


@pytest.mark.usefixtures("without_spark")
def test_an_archive_stops_at_lost_records_or_skips_them(
    bootstrap: str, trimmed: str, tmp_path: Path
) -> None:
    topic, warehouse = trimmed, str(tmp_path)
    assert sync_topic(bootstrap, topic, warehouse).rows == 15
    produce(bootstrap, topic, range(45, 51))
    lose_everything(bootstrap, topic)
    produce(bootstrap, topic, range(51, 54))

    with pytest.raises(SyncError, match=r"-2 \[15, 17\): retention or DeleteRecords removed"):
        sync_topic(bootstrap, topic, warehouse)
    notes: list[str] = []
    result = sync_topic(bootstrap, topic, warehouse, skip_lost=True, notice=notes.append)
    assert (result.rows, result.rows_total, result.ends) == (3, 18, {0: 18, 1: 18, 2: 18})
    gone = ", ".join(f"{topic}-{partition} [15, 17)" for partition in range(3))
    assert notes == [
        f"{topic}: skipped {gone}: the topic lost these offsets before they were archived"
    ]
