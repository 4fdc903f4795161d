"""The archive of a topic in an Iceberg table: CPU-seconds per megabyte, and the cost of commits.

The first part archives the same topic of random payloads several times, each time into a new table,
with a Spark session that stays warm. CPU-seconds are of the driver, of Java and of the Python
workers together. Each table is read back with plain pyarrow: the number of rows and a sum over all
values must equal the topic's. The second part commits small batches to one table, without
Spark, and compares the last commits with the first ones.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from brokers import BrokerError, LakelogBroker, process_tree, running  # noqa: E402
from rounds import note  # noqa: E402
from tables import Table  # noqa: E402

from kafka_jars import require  # noqa: E402
from lakelog.client.admin import Admin  # noqa: E402
from lakelog.records.builder import BatchBuilder  # noqa: E402
from lakelog.spark.archive.sync import SyncResult, sync_topic  # noqa: E402
from lakelog.spark.session import local_session  # noqa: E402
from lakelog.tables.archive.commit import commit_batch  # noqa: E402
from unit.tables.archive_table import new_table, write_batch  # noqa: E402
from wire_client import WireClient, produce  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOPIC = "records"
_PARTITIONS = 4
_BATCH_BYTES = 64 << 10
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_SHOWN = 100
"""Commits at the begin and at the end that are compared."""


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/archive.py", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5, help="warm runs")
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def _fill(broker: LakelogBroker, megabytes: int, value_bytes: int) -> tuple[int, int]:
    """Produce random values; return their number and the sum of their checksums."""
    records = (megabytes << 20) // value_bytes
    note(f"producing {records:,} records of {value_bytes} B")
    address = f"127.0.0.1:{broker.port}"
    with Admin(address) as admin:
        admin.topics.create(_TOPIC, partitions=_PARTITIONS)
    now_ms, total = int(time.time() * 1000), 0
    per_batch = max(1, _BATCH_BYTES // value_bytes)
    with WireClient(address) as wire:
        for number, first in enumerate(range(0, records, per_batch)):
            builder = BatchBuilder()
            for _ in range(min(per_batch, records - first)):
                value = os.urandom(value_bytes)
                total += zlib.crc32(value)
                builder.append(now_ms, None, value)
            answer = produce(wire, _TOPIC, bytes(builder.build()), partition=number % _PARTITIONS)
            if answer.error_code:
                raise BrokerError(f"filling: error {answer.error_code}")
    return records, total


def _cpu_seconds(java: int) -> float:
    """Of this process, of Java, and of the Python processes below it, also ended ones."""
    ticks = 0
    for pid in process_tree(java):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return time.process_time() + ticks / _TICKS_PER_SECOND


def _read_back(result: SyncResult) -> tuple[int, int]:
    """Return the number of rows and the sum of the checksums of their values."""
    import pyarrow.parquet as pq
    from pyiceberg.catalog import load_catalog

    table = load_catalog("lakelog", **result.catalog).load_table(result.table)
    rows = total = 0
    for task in table.scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        for batch in pq.ParquetFile(path).iter_batches(columns=["value"]):
            rows += batch.num_rows
            total += sum(zlib.crc32(value) for value in batch.column(0).to_pylist())
    return rows, total


def _archive(
    spark: SparkSession, bootstrap: str, scratch: Path, rounds: int
) -> list[tuple[float, float, tuple[int, int]]]:
    """Archive the topic into new tables; return seconds, CPU-seconds and the read-back of each."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    found = []
    for number in range(rounds + 1):
        before, began = _cpu_seconds(gateway.proc.pid), time.monotonic()
        result = sync_topic(bootstrap, _TOPIC, str(scratch / f"table-{number}"), spark=spark)
        wall_s = time.monotonic() - began
        cpu_s = _cpu_seconds(gateway.proc.pid) - before
        note(f"run {number}: {wall_s:.2f} s, {cpu_s:.2f} CPU-s")
        found.append((wall_s, cpu_s, _read_back(result)))
    return found


def _commit(folder: Path, commits: int) -> list[float]:
    """Return the milliseconds of each commit of a small batch."""
    address = new_table(folder)
    found = []
    for number in range(commits):
        batch = write_batch(address, number, number + 1, number)
        began = time.monotonic()
        commit_batch(address, batch)
        found.append((time.monotonic() - began) * 1000)
    return found


def _measure(options: argparse.Namespace, scratch: Path) -> Iterator[Table]:
    require("java")
    broker = LakelogBroker(scratch / "lakelog")
    with running([broker]):
        expected = _fill(broker, options.megabytes, options.value_bytes)
        spark = local_session("benchmark", log=scratch / "spark.log", master=options.master)
        try:
            runs = _archive(spark, f"127.0.0.1:{broker.port}", scratch, options.rounds)
        finally:
            spark.stop()
    if any(found != expected for _, _, found in runs):
        raise BrokerError(f"a table is not the topic: {runs}, expected {expected}")
    warm = runs[1:] or runs
    wall, cpu = median(run[0] for run in warm), median(run[1] for run in warm)
    size = options.megabytes * (1 << 20) / 1e6
    speed = [f"{size:.0f}", f"{wall:.2f}", f"{cpu:.2f}", f"{size / wall:.0f}", f"{size / cpu:.0f}"]
    yield Table(("MB", "seconds", "CPU-s", "MB/s", "MB per CPU-s"), [speed], 1)
    yield _commit_table(_commit(scratch / "commits", options.commits))


def _commit_table(times: list[float]) -> Table:
    first, last = median(times[:_SHOWN]), median(times[-_SHOWN:])
    cost = [str(len(times)), f"{first:.0f}", f"{last:.0f}", f"{last / first:.2f}"]
    return Table(("commits", f"first {_SHOWN}, ms", f"last {_SHOWN}, ms", "ratio"), [cost], 1)


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return (
            f"{options.megabytes} MiB of random values of {options.value_bytes} B in {_PARTITIONS} "
            f"partitions, zstd, {options.master}; every table was read back. The median of "
            f"{options.rounds} warm runs; commits of one record each, without Spark."
        )

    frame = Benchmark("archive", "Archive", about)
    return frame.run(argv, options, lambda folder: _measure(options, folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
