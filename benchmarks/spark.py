"""The PySpark source beside Spark's own Kafka connector: two queries, one session, one broker.

Both read the same topic of random payloads from a lakelog broker, in turn, and must agree on the
result: counts, lengths, offsets and a hash of every key and value. One query reads all columns, the
other needs values only, which lakelog has an option for. The first run of each pays for starting
workers and for compiling; the others are warm. CPU-seconds are Spark's: of its Java process, and
of its Python workers. With `--floor`, the same queries read constant batches, which shows what
Spark takes for rows that cost nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

import constant_source  # noqa: E402
import pyarrow as pa  # noqa: E402
from benchmark import Benchmark  # noqa: E402
from brokers import BrokerError, LakelogBroker, running  # noqa: E402
from constant_source import ConstantSource  # noqa: E402
from pyspark import cloudpickle  # noqa: E402
from rounds import note  # noqa: E402
from spark_session import cpu_seconds, start_session  # noqa: E402
from tables import Table  # noqa: E402

from lakelog.client.admin import Admin  # noqa: E402
from lakelog.columns.encoding.encode import RowEncoder  # noqa: E402
from official_connector import connector_jars  # noqa: E402
from wire_client import WireClient, produce  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOPIC = "records"
_PARTITIONS = 4
_BATCH_RECORDS = 150
_OVERHEAD_BYTES = 10
"""Of a record of 100 B to 8 KB without a key, with its part of the header of its batch."""
_CHUNK_RECORDS = 5_000
_FORMATS = ("lakelog", "kafka")
_QUERIES = {
    "all": (
        "count(1)",
        "sum(length(value))",
        "max(offset)",
        "sum(shiftright(xxhash64(key, value), 24))",
    ),
    "value": (
        "count(1)",
        "sum(length(value))",
        "sum(shiftright(xxhash64(value), 24))",
    ),
}
"""Sums of 40 bits of each hash fit into 64 bits.

Decimals, which hold all its bits, would add 0.1 CPU-seconds per million rows to both formats.
"""
_OPTIONS = {("lakelog", "value"): {"columns": "value"}}
"""Options of a format for a query besides brokers and topic."""
_VARIANTS = [(name, columns) for columns in _QUERIES for name in _FORMATS]
_FLOORS = [(ConstantSource.name(), columns) for columns in _QUERIES]
_COLUMNS = (
    *("format", "columns", "run", "seconds", "M records/s", "Java CPU-s/M", "Python CPU-s/M"),
    *("time of lakelog", "CPU-s / lakelog's"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One query: its result, its seconds, and the CPU-seconds of Spark's processes."""

    result: tuple[Any, ...]
    wall_s: float
    java_s: float
    python_s: float


Runs = dict[tuple[str, str], list[Run]]
"""Runs of each format and query."""


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/spark.py", description=__doc__)
    parser.add_argument("--records", type=int, default=16_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5, help="warm runs of each")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--floor", action="store_true", help="also read constant batches")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def fill(broker: LakelogBroker, records: int, value_bytes: int) -> None:
    """Batches of about 150 records, with 100 B as a producer with its defaults makes them.

    No two are the same.
    """
    note(f"producing {records:,} records of {value_bytes} B")
    with Admin(f"127.0.0.1:{broker.port}") as admin:
        admin.topics.create(_TOPIC, partitions=_PARTITIONS)
    encoder = RowEncoder(1, batch_bytes=_BATCH_RECORDS * (value_bytes + _OVERHEAD_BYTES))
    with WireClient(f"127.0.0.1:{broker.port}") as wire:
        encoded = encoder.encode(_random_values(records, value_bytes), int(time.time() * 1000))
        for number, batch in enumerate(encoded):
            partition = number % _PARTITIONS
            answer = produce(wire, _TOPIC, bytes(batch.build()), partition=partition)
            if answer.error_code:
                raise BrokerError(f"filling: error {answer.error_code}")


def _random_values(records: int, value_bytes: int) -> Iterator[pa.RecordBatch]:
    kind = pa.binary(value_bytes)
    for first in range(0, records, _CHUNK_RECORDS):
        count = min(_CHUNK_RECORDS, records - first)
        data = pa.py_buffer(os.urandom(count * value_bytes))
        values = pa.FixedSizeBinaryArray.from_buffers(kind, count, [None, data])
        yield pa.record_batch({"value": values})


def _options(arguments: argparse.Namespace, variant: tuple[str, str]) -> dict[str, str]:
    """Return the options of a variant that it does not share with the others."""
    if variant not in _FLOORS:
        return _OPTIONS.get(variant, {})
    return {
        "records": str(arguments.records),
        "bytes": str(arguments.value_bytes),
        "partitions": str(_PARTITIONS),
        "columns": variant[1],
    }


def run_query(
    spark: SparkSession, bootstrap: str, variant: tuple[str, str], options: Mapping[str, str]
) -> Run:
    """Run the query of a variant. options: besides brokers and topic."""
    java_before, python_before = cpu_seconds(spark)
    began = time.monotonic()
    format_, columns = variant
    frame = (
        spark.read.format(format_)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", _TOPIC)
        .options(**options)
        .load()
    )
    (row,) = frame.selectExpr(*_QUERIES[columns]).collect()
    wall_s = time.monotonic() - began
    java_after, python_after = cpu_seconds(spark)
    return Run(tuple(row), wall_s, java_after - java_before, python_after - python_before)


def _measure(spark: SparkSession, bootstrap: str, arguments: argparse.Namespace) -> Runs:
    """The first run of each, then `arguments.rounds` more, in turn."""
    variants = _VARIANTS + _FLOORS * arguments.floor
    runs: Runs = {variant: [] for variant in variants}
    for number in range(arguments.rounds + 1):
        for variant in variants if number % 2 == 0 else reversed(variants):
            run = run_query(spark, bootstrap, variant, _options(arguments, variant))
            kind = f"warm run {number}" if number else "first run"
            note(f"{' '.join(variant)}, {kind}: {run.wall_s:.2f} s")
            runs[variant].append(run)
    return runs


def _table(runs: Runs, records: int) -> Table:
    millions = records / 1e6
    rows = []
    for kind, chosen in (("first", slice(0, 1)), ("warm", slice(1, None))):
        parts = {variant: measured[chosen] for variant, measured in runs.items()}
        seconds = {v: median(run.wall_s for run in part) for v, part in parts.items()}
        work = {v: median(run.java_s + run.python_s for run in part) for v, part in parts.items()}
        for variant, part in parts.items():
            name, columns = variant
            ours = "lakelog", columns
            is_other = name != "lakelog"
            rows.append(
                [
                    name,
                    columns,
                    kind,
                    f"{seconds[variant]:.2f}",
                    f"{millions / seconds[variant]:.2f}",
                    f"{median(run.java_s for run in part) / millions:.2f}",
                    f"{median(run.python_s for run in part) / millions:.2f}",
                    f"{seconds[ours] / seconds[variant]:.2f} x" if is_other else "",
                    f"{work[variant] / work[ours]:.1f}" if is_other else "",
                ]
            )
    return Table(_COLUMNS, rows, len(runs))


def _check_agreement(runs: Runs) -> None:
    """Raise `BrokerError` if the formats disagree on a query."""
    for columns in _QUERIES:
        results = {run.result for name in _FORMATS for run in runs[name, columns]}
        if len(results) != 1:
            raise BrokerError(f"the results differ: {results}")


def _tables(options: argparse.Namespace, scratch: Path) -> Iterator[Table]:
    jars = connector_jars()
    broker = LakelogBroker(scratch / "lakelog")
    with running([broker]):
        fill(broker, options.records, options.value_bytes)
        spark = start_session(options.master, jars, scratch / "spark.log")
        try:
            cloudpickle.register_pickle_by_value(constant_source)  # workers cannot import it
            spark.dataSource.register(ConstantSource)
            runs = _measure(spark, f"127.0.0.1:{broker.port}", options)
        finally:
            spark.stop()
    _check_agreement(runs)
    yield _table(runs, options.records)


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return (
            f"{options.records:,} records of {options.value_bytes} B in {_PARTITIONS} partitions, "
            f"{options.master}; the result of every run is the same. The first run, and the median "
            f"of {options.rounds} warm ones."
        )

    frame = Benchmark("spark", "PySpark source", about)
    return frame.run(argv, options, lambda folder: _tables(options, folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
