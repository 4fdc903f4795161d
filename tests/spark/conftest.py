"""One Spark session for all tests in this process, and topics made for one test."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog.client.admin import Admin
from lakelog.client.producer.api import Producer
from lakelog.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]

START_MS = (int(time.time()) - 3600) * 1000
"""Of the first record. Were it long ago, the broker would soon forget the records' producers
(`producer.id.expiration.ms`), and the shared broker's snapshots would not be what its logs say."""


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Java and the Python workers write to their standard error."""
    return tmp_path_factory.mktemp("spark") / "spark.log"


@pytest.fixture(scope="session")
def spark(spark_log: Path) -> Iterator[SparkSession]:
    session = local_session("tests", log=spark_log)
    yield session
    session.stop()


@pytest.fixture
def make_topic(bootstrap: str) -> MakeTopic:
    """Creates a topic with `records` records, `v0`, `v1`, ... dealt to its partitions in turn."""

    def make(records: int = 0, *, partitions: int = 3, name: str = "") -> str:
        topic = name or f"spark-{uuid.uuid4().hex[:12]}"
        with Admin(bootstrap) as admin:
            admin.topics.create(topic, partitions=partitions, configs={"retention.ms": "-1"})
        produce(bootstrap, topic, range(records), partitions=partitions)
        return topic

    return make


def produce(bootstrap: str, topic: str, numbers: range, *, partitions: int = 3) -> None:
    """Record i goes to partition i % partitions at START_MS + i, with a header if i is even."""
    with Producer(bootstrap) as producer:
        for i in numbers:
            producer.send(
                topic,
                f"v{i}".encode(),
                f"k{i}".encode() if i % 5 else None,
                headers=() if i % 2 else (("n", b"%d" % i), ("empty", None)),
                partition=i % partitions,
                timestamp_ms=START_MS + i,
            )
