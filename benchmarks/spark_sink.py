"""The PySpark sink beside that of Spark's own Kafka connector: one session, one broker.

Each run writes the same cached rows with random payloads to a new topic, and a query checks count
and hash of the topic. `noop` reads the rows and writes none: the work of Spark itself. CPU-seconds
are Spark's: of its Java process, and of its Python workers.

The second table is the time from the acknowledgement of a record in a source topic until a consumer
that reads committed records gets it from the target of a streaming query.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from brokers import BrokerError, LakelogBroker, running  # noqa: E402
from confluent_kafka import Consumer, TopicPartition  # noqa: E402
from rounds import note  # noqa: E402
from spark_session import cpu_seconds, start_session  # noqa: E402
from tables import Table  # noqa: E402

from lakelog.client.admin import Admin  # noqa: E402
from lakelog.client.producer import Producer  # noqa: E402
from official_connector import connector_jars  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITIONS = 4
_VARIANTS = {
    "noop": ("noop", {}),
    "kafka, at least once": ("kafka", {}),
    "lakelog, at least once": ("lakelog", {"delivery": "at-least-once"}),
    "lakelog, exactly once": ("lakelog", {"delivery": "exactly-once"}),
}
"""The format and the options of each run."""
_STREAMED = [name for name in _VARIANTS if name != "noop"]
_CHECK = ("count(1)", "sum(cast(xxhash64(value) as decimal(38,0)))")
_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """One write: seconds, and the CPU-seconds of Spark's processes."""

    wall_s: float
    java_s: float
    python_s: float


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/spark_sink.py", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5, help="warm runs of each")
    parser.add_argument("--streamed", type=int, default=60, help="records of each streaming query")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def _rows(spark: SparkSession, records: int, value_bytes: int) -> DataFrame:
    """Return cached rows with a hexadecimal hash as their value."""
    hashed = "repeat(sha2(cast(id AS string), 512), 8)"
    value = f"cast(substr({hashed}, 1, {value_bytes}) AS binary) AS value"
    frame = spark.range(records, numPartitions=_PARTITIONS).selectExpr(value).persist()
    frame.count()
    return frame


def _create(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=_PARTITIONS)


def _check(frame: DataFrame) -> tuple[Any, ...]:
    (row,) = frame.selectExpr(*_CHECK).collect()
    return tuple(row)


def _run(spark: SparkSession, rows: DataFrame, bootstrap: str, name: str, topic: str) -> Run:
    format_, options = _VARIANTS[name]
    writer = rows.write.format(format_).mode("append")
    if format_ != "noop":
        _create(bootstrap, topic)
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    java_before, python_before = cpu_seconds(spark)
    began = time.monotonic()
    writer.options(**options).save()
    wall_s = time.monotonic() - began
    java_after, python_after = cpu_seconds(spark)
    return Run(wall_s, java_after - java_before, python_after - python_before)


def _measure(spark: SparkSession, rows: DataFrame, bootstrap: str, rounds: int) -> dict[str, Any]:
    """Return warm runs of each variant, in turn. Raises `BrokerError` if a topic differs."""
    runs: dict[str, list[Run]] = {name: [] for name in _VARIANTS}
    wanted = _check(rows)
    for number in range(rounds + 1):
        for place, name in enumerate(list(_VARIANTS) if number % 2 else reversed(_VARIANTS)):
            topic = f"written-{number}-{place}"
            run = _run(spark, rows, bootstrap, name, topic)
            note(f"{name}, run {number}: {run.wall_s:.2f} s, {run.java_s + run.python_s:.2f} CPU-s")
            if name != "noop":
                reader = spark.read.format("lakelog").option("kafka.bootstrap.servers", bootstrap)
                if _check(reader.option("subscribe", topic).load()) != wanted:
                    raise BrokerError(f"{name}: the topic has other records than the rows")
            if number:
                runs[name].append(run)
    return runs


def _words(name: str) -> tuple[str, str]:
    format_, _, delivery = name.partition(", ")
    return format_, delivery


def _table(runs: dict[str, list[Run]], records: int) -> Table:
    millions = records / 1e6
    rows = []
    for name, part in runs.items():
        java = median(run.java_s for run in part) / millions
        python = median(run.python_s for run in part) / millions
        wall = median(run.wall_s for run in part)
        whole = [f"{java:.2f}", f"{python:.2f}", f"{java + python:.2f}"]
        rows.append([*_words(name), f"{wall:.2f}", f"{millions / wall:.2f}", *whole])
    columns = (
        "sink",
        "delivery",
        "seconds",
        "M records/s",
        "Java CPU-s/M",
        "Python CPU-s/M",
        "CPU-s/M",
    )
    return Table(columns, rows, 1)


def _latencies(
    spark: SparkSession, bootstrap: str, name: str, count: int, folder: Path
) -> list[float]:
    """Return the seconds from acknowledged to visible, of single records in a running query."""
    format_, options = _VARIANTS[name]
    source, target = f"source-{folder.name}", f"target-{folder.name}"
    _create(bootstrap, source)
    _create(bootstrap, target)
    broker = {"kafka.bootstrap.servers": bootstrap}
    stream = spark.readStream.format(format_).options(**broker).option("subscribe", source)
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .writeStream.format(format_)
        .options(**broker, **options)
        .option("topic", target)
        .option("checkpointLocation", str(folder))
        .start()
    )
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "latencies",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(target, number, 0) for number in range(_PARTITIONS)])
    found = []
    with Producer(bootstrap, linger_ms=0) as producer:
        for number in range(count + 5):
            producer.send(source, b"%d" % number).result()
            acknowledged = time.monotonic()
            message = consumer.poll(_WAIT_S)
            if message is None or message.value() != b"%d" % number:
                raise BrokerError(f"{name}: record {number} did not arrive: {query.exception()}")
            # The first batches start workers and compile.
            if number >= 5:
                found.append(time.monotonic() - acknowledged)
    consumer.close()
    query.stop()
    return found


def _latency_table(found: dict[str, list[float]]) -> Table:
    rows = []
    for name, seconds in found.items():
        p90 = quantiles(seconds, n=10)[-1]
        rows.append([*_words(name), f"{median(seconds) * 1000:.0f}", f"{p90 * 1000:.0f}"])
    return Table(("sink of a stream", "delivery", "p50 ms", "p90 ms"), rows, 1)


def _tables(options: argparse.Namespace, scratch: Path) -> Iterator[Table]:
    jars = connector_jars()
    broker = LakelogBroker(scratch / "lakelog")
    with running([broker]):
        spark = start_session(options.master, jars, scratch / "spark.log")
        bootstrap = f"127.0.0.1:{broker.port}"
        try:
            rows = _rows(spark, options.records, options.value_bytes)
            yield _table(_measure(spark, rows, bootstrap, options.rounds), options.records)
            rows.unpersist()
            latencies = {}
            for number, name in enumerate(_STREAMED):
                folder = scratch / f"checkpoint-{number}"
                latencies[name] = _latencies(spark, bootstrap, name, options.streamed, folder)
        finally:
            spark.stop()
    yield _latency_table(latencies)


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return (
            f"{options.records:,} records of {options.value_bytes} B into {_PARTITIONS} "
            f"partitions, {options.master}; medians of {options.rounds} warm runs; every topic was "
            f"read back. Then {options.streamed} single records through a streaming query from "
            "topic to topic, from acknowledged to visible."
        )

    frame = Benchmark("spark_sink", "PySpark sink", about)
    return frame.run(argv, options, lambda folder: _tables(options, folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
