"""The steps of the demo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakelog.client.admin import Admin
from lakelog.client.producer.api import Producer
from lakelog.spark.archive.sync import SyncResult, sync_topic
from lakelog.spark.demo.lines import client_address
from lakelog.spark.demo.parsing import parse_requests, read_requests
from lakelog.spark.demo.proof import Tally, count_with_lakelog, count_with_others
from lakelog.spark.demo.report import Ledger, Requests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES_TOPIC = "access-log"
REQUESTS_TOPIC = "requests"
PARTITIONS = 3
LINE_BYTES_MAX = 64 << 20
_WINDOW = 10_000
_TOP_PATHS = 8


@dataclass
class Demo:
    """One run. `produced` has the acknowledged records by partition."""

    bootstrap: str
    folder: Path
    spark: SparkSession
    produced: dict[int, Tally] = field(default_factory=dict)

    def create_topics(self) -> None:
        with Admin(self.bootstrap) as admin:
            for topic in (LINES_TOPIC, REQUESTS_TOPIC):
                admin.topics.create(
                    topic,
                    partitions=PARTITIONS,
                    configs={"max.message.bytes": str(LINE_BYTES_MAX + (1 << 20))},
                )

    def produce(self, lines: Iterator[bytes]) -> int:
        """Produce lines as records; return how many the broker acknowledged.

        Raises `NotWrittenError` and `OutcomeUnknownError`.
        """
        count = 0
        with Producer(self.bootstrap, max_request_bytes=LINE_BYTES_MAX) as producer:
            while window := list(islice(lines, _WINDOW)):
                sent = [producer.send(LINES_TOPIC, line, client_address(line)) for line in window]
                producer.flush()
                for line, delivery in zip(window, sent, strict=True):
                    self.produced.setdefault(delivery.result().partition, Tally()).add(line)
                count += len(window)
        return count

    @contextmanager
    def parsing_stream(self) -> Iterator[Any]:
        lines = self._source(self.spark.readStream, LINES_TOPIC).load()
        sink = (
            parse_requests(lines)
            .writeStream.format("lakelog")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("kafka.max.request.size", LINE_BYTES_MAX)
            .option("topic", REQUESTS_TOPIC)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
        )
        query = sink.start()
        try:
            yield query
        finally:
            query.stop()

    def archive(self, topic: str) -> SyncResult:
        return sync_topic(self.bootstrap, topic, str(self.folder / "warehouse"), spark=self.spark)

    def requests(self) -> Requests:
        records = self._source(self.spark.read, REQUESTS_TOPIC).option("includeHeaders", True)
        rows = read_requests(records.load()).cache()
        parsed, every = rows.where("parsed").count(), rows.count()
        lines = self._source(self.spark.read, LINES_TOPIC).option("columns", "value").load()
        return Requests(
            parsed=parsed,
            malformed=every - parsed,
            repeated=every - lines.distinct().count(),
            top_paths=_top_paths(rows),
            errors_by_hour=_errors_by_hour(rows),
        )

    def ledger(self, topic: str, archive: SyncResult) -> Ledger:
        """Return the results of two readers of a topic, and the expected result.

        Each line of the first topic has one record in the second, in the same partition. The bytes
        of that record come from Spark, so for the second topic the readers check each other.
        """
        first = count_with_lakelog(self.bootstrap, topic, archive)
        second = count_with_others(self.bootstrap, topic, archive)
        produced = {p: self.produced.get(p, Tally()) for p in range(PARTITIONS)}
        digests = {p: tally.digest for p, tally in self.produced.items()}
        return Ledger(
            topic,
            {p: tally.count for p, tally in produced.items()},
            digests if topic == LINES_TOPIC else first.digests,
            {"PyArrow + lakelog": first, "DuckDB + librdkafka": second},
        )

    def _source(self, reader: Any, topic: str) -> Any:
        return (
            reader.format("lakelog")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
        )


def _top_paths(rows: DataFrame) -> list[tuple[str, int]]:
    counted = rows.where("parsed").groupBy("request.path").count()
    top = counted.orderBy("count", "path", ascending=[False, True]).limit(_TOP_PATHS)
    return [(row["path"], row["count"]) for row in top.collect()]


def _errors_by_hour(rows: DataFrame) -> dict[datetime, int]:
    errors = rows.where("request.status >= 400")
    hours = errors.selectExpr("unix_timestamp(date_trunc('HOUR', request.time)) AS hour")
    return {
        datetime.fromtimestamp(row["hour"], UTC): row["count"]
        for row in hours.groupBy("hour").count().collect()
    }
