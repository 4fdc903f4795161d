"""Queries that the tests run: of a topic at once, and of a topic as a stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, bootstrap: str, **options: Any) -> DataFrame:
    reader = spark.read.format("lakelog").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**options).load()


def read_stream(spark: SparkSession, bootstrap: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("lakelog").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(startingOffsets="earliest", **options).load()


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row["value"]).decode() for row in frame.select("value").collect())


class Stream:
    """A query from a topic into memory, run to the present end each time, with one checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, **options: Any) -> None:
        self.options = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest"}
        self.options |= options
        self.spark = spark
        self.folder = folder
        self.progress: list[Any] = []

    def run(self) -> list[str]:
        """The values that this run read."""
        seen: list[str] = []
        source = self.spark.readStream.format("lakelog").options(**self.options).load()
        query = (
            source.writeStream.foreachBatch(lambda frame, _: seen.extend(values(frame)))
            .option("checkpointLocation", str(self.folder))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self.progress = query.recentProgress
        return sorted(seen)

    def last_offset(self) -> Path:
        return max((self.folder / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
