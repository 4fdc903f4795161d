"""The steps of the demo, and the query of its stream.

The query parses access-log lines into JSON, and keeps malformed lines unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - what PySpark's users write

from lakelog.client.admin import Admin
from lakelog.client.producer.api import Producer
from lakelog.spark.archive.sync import SyncResult, sync_topic
from lakelog.spark.demo.report import (
    Ledger,
    Requests,
    Tally,
    client_address,
    count_with_lakelog,
    count_with_others,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


COMBINED = (
    r'(?s)^(\S+) (\S+) (\S+) \[([^\]]+)\] "(\S+) (\S+) (\S+)" (\d{3}) (\d+|-) "(.*)" "(.*)"\r?$'
)
"""The combined log format of Apache and nginx."""

REQUEST = (
    "client string, user string, time timestamp, method string, path string, protocol string, "
    "status int, bytes bigint, referrer string, agent string"
)


def parse_requests(lines: DataFrame) -> DataFrame:
    """Return rows for the sink: a request as JSON, or the bytes of a malformed line.

    The header `parsed` distinguishes the two. A row goes to the partition of its line, so both
    topics have the same order. The query uses only `try_` functions, because lines that are not
    UTF-8 or have an impossible date are data too.
    """
    text = F.try_validate_utf8(F.col("value").cast("string"))
    request = F.struct(
        _group(text, 1).alias("client"),
        _group(text, 3).alias("user"),
        F.try_to_timestamp(_group(text, 4), F.lit("dd/MMM/yyyy:HH:mm:ss Z")).alias("time"),
        _group(text, 5).alias("method"),
        _group(text, 6).alias("path"),
        _group(text, 7).alias("protocol"),
        _group(text, 8).try_cast("int").alias("status"),
        _group(text, 9).try_cast("bigint").alias("bytes"),
        _group(text, 10).alias("referrer"),
        _group(text, 11).alias("agent"),
    )
    parsed = lines.withColumn("request", request)
    is_request = F.col("request.time").isNotNull()
    value = F.when(is_request, F.to_json("request").cast("binary")).otherwise(F.col("value"))
    flag = F.when(is_request, F.lit("true")).otherwise(F.lit("false")).cast("binary")
    header = F.struct(F.lit("parsed").alias("key"), flag.alias("value"))
    return parsed.select("key", value.alias("value"), "partition", F.array(header).alias("headers"))


def read_requests(records: DataFrame) -> DataFrame:
    """Return the records of the second topic with the fields of the requests."""
    is_request = F.col("headers")[0]["value"].cast("string") == "true"
    request = F.when(is_request, F.from_json(F.col("value").cast("string"), REQUEST))
    return records.select(request.alias("request"), is_request.alias("parsed"))


def _group(text: Column, number: int) -> Column:
    return F.regexp_extract(text, COMBINED, number)


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
