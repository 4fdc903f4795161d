"""The exactly-once sink and Apache Kafka: refused by name, or safe on the standard wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from kafka_process import KafkaProcess
from lakelog.client.admin import Admin
from spark.queries import read, values
from spark.sink_copies import Copy
from spark.topics import produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with KafkaProcess(tmp_path_factory.mktemp("kafka") / "data") as process:
        with Admin(process.bootstrap) as admin:
            for topic in ("source", "refused", "target"):
                admin.topics.create(topic, partitions=3)
        produce(process.bootstrap, "source", range(25))
        yield process.bootstrap


def test_commit_sets_are_refused_by_name(spark: SparkSession, kafka: str, tmp_path: Path) -> None:
    copy = Copy(spark, kafka, "source", tmp_path)
    text = r"UnsupportedDeliveryError: option 'delivery'.*lakelog.txn.set.*at-least-once"
    with pytest.raises(StreamingQueryException, match=text):
        copy.stream("refused")
    assert values(read(spark, kafka, subscribe="refused")) == []


def test_foreach_batch_writes_each_batch_once(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    copy = Copy(spark, kafka, "source", tmp_path)
    copy.foreach_batch("target")
    copy.forget_last_commit()
    produce(kafka, "source", range(25, 30))
    copy.foreach_batch("target")
    assert values(read(spark, kafka, subscribe="target")) == sorted(f"v{i}" for i in range(30))
