"""A query that copies a topic, for the tests of the sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakelog.spark import write_to
from spark.queries import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


ROUTED = ("key", "value", "headers", "timestamp", "partition + 1 AS partition")
"""All columns of a copy, each record one partition further."""


class Copy:
    """A query that copies a topic in batches of ten records, to the present end each time."""

    def __init__(self, spark: SparkSession, bootstrap: str, source: str, folder: Path) -> None:
        self.spark, self.source, self.folder = spark, source, folder
        self.broker = {"kafka.bootstrap.servers": bootstrap}

    def rows(self, columns: Sequence[str] = ("key", "value")) -> DataFrame:
        stream = (
            self.spark.readStream.format("lakelog")
            .options(**self.broker)
            .option("subscribe", self.source)
            .option("includeHeaders", "true")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 10)
            .load()
        )
        return stream.selectExpr(*columns)

    def foreach_batch(
        self,
        target: str | None,
        columns: Sequence[str] = ("key", "value"),
        options: Mapping[str, str] | None = None,
        change: Callable[[Any], Any] | None = None,
    ) -> StreamingQuery:
        """Run the query. change: of the Arrow batches of each task, before the sink."""
        sink = write_to(target, self.broker | dict(options or {}))

        def write(frame: DataFrame, number: int) -> None:
            changed = frame if change is None else frame.mapInArrow(change, frame.schema)
            sink(changed, number)

        return self._run(self.rows(columns).writeStream.foreachBatch(write))

    def stream(
        self,
        target: str | None,
        columns: Sequence[str] = ("key", "value"),
        options: Mapping[str, str] | None = None,
        where: str = "true",
    ) -> StreamingQuery:
        """Run the query with `format("lakelog")`, exactly once."""
        writer = (
            self.rows(columns).where(where).writeStream.format("lakelog").options(**self.broker)
        )
        if target is not None:
            writer = writer.option("topic", target)
        return self._run(writer.option("delivery", "exactly-once").options(**(options or {})))

    def _run(self, writer: Any) -> StreamingQuery:
        query: StreamingQuery = (
            writer.option("checkpointLocation", str(self.folder)).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        return query

    def forget_last_commit(self) -> None:
        """Put the checkpoint into the state after a crash between the sink's commit and Spark's."""
        self._forget_last("commits")

    def forget_last_batch(self) -> None:
        """Put the checkpoint into the state before the last batch, as a backup restores it."""
        self._forget_last("commits")
        self._forget_last("offsets")

    def _forget_last(self, log: str) -> None:
        folder = self.folder / log
        last = max(folder.glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (folder / f".{last.name}.crc").unlink(missing_ok=True)

    def check_routed(self, target: str) -> None:
        """Check that a copy of the `ROUTED` columns has all records with every column."""
        columns = ["partition", "key", "value", "headers", "timestamp"]
        copied, made = (
            read(
                self.spark,
                self.broker["kafka.bootstrap.servers"],
                subscribe=topic,
                includeHeaders=True,
            ).collect()
            for topic in (self.source, target)
        )
        wanted = sorted(
            str([row["partition"] + 1, *(row[name] for name in columns[1:])]) for row in copied
        )
        assert sorted(str([row[name] for name in columns]) for row in made) == wanted
