"""One Spark session for all tests in this process, topics made for one test, and kills."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog.client.admin import Admin
from lakelog.spark.session import local_session
from spark.class_archive import use_prepared_classes
from spark.kill_faults import Faults
from spark.kill_table import KillTable
from spark.plain_engine import plain_engine
from spark.topics import MakeTopic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def prepared_classes() -> None:
    """Sessions of this process and of its children start in half of the time."""
    use_prepared_classes()


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
def without_spark() -> Iterator[None]:
    """Archive without Java in this process (`spark.plain_engine`)."""
    with plain_engine():
        yield


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


@pytest.fixture(scope="session")
def kills(pytestconfig: pytest.Config) -> int:
    """The number of kills in each long form; 0 in a run that has short forms only."""
    return int(pytestconfig.getoption("--sink-kills"))


@pytest.fixture(scope="session")
def kill_table(kills: int) -> Iterator[KillTable]:
    """The table of all forms, which is printed at the end of long ones."""
    table = KillTable()
    yield table
    if kills and table.rows:
        print(table.text("All forms:"))
        table.check(kills)


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path / "faults")
