"""A running query whose only broker is killed and starts again."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_process import BrokerProcess
from lakelog.client.admin import Admin
from spark.queries import values
from spark.topics import produce
from waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

TOPIC = "restarted"
OPTIONS = ({"subscribe": TOPIC}, {"subscribePattern": f"{TOPIC}.*"})


class Follower:
    """A running query, and the values that it has read."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, folder: Path, options: dict[str, str]
    ) -> None:
        self.seen: list[str] = []
        reader = spark.readStream.format("lakelog").options(**options)
        reader = reader.option("kafka.bootstrap.servers", bootstrap)
        rows = reader.option("startingOffsets", "earliest").load()
        writer = rows.writeStream.foreachBatch(lambda frame, _: self.seen.extend(values(frame)))
        self.query = writer.option("checkpointLocation", str(folder)).start()

    def has(self, count: int) -> bool:
        """Whether the query has read as many records; an ended query never will."""
        assert self.query.exception() is None
        return len(self.seen) >= count


def test_running_queries_outlive_a_restart_of_their_broker(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Queries look for new records all the time, so each kill hits several requests of each."""
    with BrokerProcess(tmp_path / "data") as broker, ExitStack() as stack:
        with Admin(broker.bootstrap) as admin:
            admin.topics.create(TOPIC, partitions=3)
        followers = []
        for number, options in enumerate(OPTIONS):
            follower = Follower(spark, broker.bootstrap, tmp_path / f"checkpoint-{number}", options)
            stack.callback(follower.query.stop)
            followers.append(follower)
        for count in (10, 20, 30):
            produce(broker.bootstrap, TOPIC, range(count - 10, count))
            for follower in followers:
                eventually(partial(follower.has, count), 120.0, "records of the query")
            broker.kill()
            broker.restart()
    expected = sorted(f"v{i}" for i in range(30))
    assert [sorted(each.seen) for each in followers] == [expected] * 2
