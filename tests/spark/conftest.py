"""One Spark session for all tests in this process, and topics made for one test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog.client.admin import Admin
from lakelog.spark.session import local_session
from spark.topics import MakeTopic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
