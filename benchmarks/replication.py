"""Three lakelog brokers and three of Apache Kafka, side by side, replicating the same load.

Topics have three replicas, producers ask for all acknowledgements, and a record is committed when
two brokers have it. The processor time of all three brokers counts. Both clusters run at once on
loopback and are loaded in turn. The program prints its measurements and passes no judgement.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from brokers import BrokerError  # noqa: E402
from clusters import CLUSTERS, SIZE, Cluster  # noqa: E402
from latencies import measure_produce  # noqa: E402
from load import Case, LoadGenerator, Measurement  # noqa: E402
from page_cache import back_free_memory  # noqa: E402
from report import Results, Start, tables  # noqa: E402
from rounds import interleaved, note  # noqa: E402
from tables import Table  # noqa: E402

_IDLE_S = 10.0
_FREE_DISK_MIN = 8_000_000_000
"""Bytes; the topics of a few rounds exist at the same time, each of them three times."""
_LARGE = Case(
    "produce 98 KB", "produce", "large", 98_000, 200, records=100, connections=SIZE, replicas=SIZE
)
_SMALL = Case(
    "produce 1 KB", "produce", "small", 1024, 50, connections=SIZE, requests=10_000, replicas=SIZE
)
CASES = (
    _LARGE,
    replace(_LARGE, name="produce 1 MB", topic="huge", batch=1_000_000, records=1000),
    replace(_LARGE, name="produce 16 KB", topic="medium", batch=16_384, records=16, megabytes=100),
    _SMALL,
)
LATENCY_CASES = (
    replace(_SMALL, topic="steady-small", megabytes=100_000, requests=1_000_000),
    replace(CASES[2], topic="steady-medium", megabytes=100_000),
)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/replication.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds per case")
    parser.add_argument("--seconds", type=int, default=5, help="of a round of latencies")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rate", type=int, help="requests/s (default: half of Kafka's peak)")
    parser.add_argument(
        "--cluster", choices=CLUSTERS, nargs="+", default=["lakelog", "kafka"], help="measured ones"
    )
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def _check_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _FREE_DISK_MIN:
        raise BrokerError(
            f"{folder.parent} has {free / 1e9:.0f} GB free, {_FREE_DISK_MIN / 1e9:.0f} are needed: "
            "free some, or name another folder in TMPDIR"
        )


def _measure_starts(clusters: Sequence[Cluster]) -> list[Start]:
    starts = []
    for cluster in clusters:
        note(f"{cluster.name}: start")
        started = time.monotonic()
        cluster.start()
        ready_s = time.monotonic() - started
        time.sleep(_IDLE_S)
        idle_mb = cluster.resident_mb()
        starts.append(Start("three brokers, no topics", cluster.name, ready_s, idle_mb))
    return starts


def _measure_loads(
    load: LoadGenerator,
    clusters: Sequence[Cluster],
    cases: Sequence[Case],
    rounds: int,
    results: Results,
) -> None:
    for case in cases:
        numbers = count(1)

        def measure(
            cluster: Cluster, case: Case = case, numbers: Iterator[int] = numbers
        ) -> Measurement:
            back_free_memory(cluster.folder, SIZE * case.megabytes)
            return _measure_apart(
                load, cluster, replace(case, topic=f"{case.topic}-{next(numbers)}")
            )

        found = interleaved(
            case.name, clusters, rounds, measure, lambda run: run.requests_per_cpu_s
        )
        for name, runs in found.items():
            results.loads[case, name] = runs


def _measure_apart(load: LoadGenerator, cluster: Cluster, case: Case) -> Measurement:
    """Measure on a topic that exists for this alone.

    The records of all rounds together would fill the disk, and the kernel would hold up writers
    until it has written the records of earlier rounds.
    """
    load.create_topic(cluster, case.topic, case.partitions, case.replicas)
    try:
        return load.measure(cluster, case)
    finally:
        load.delete_topic(cluster, case.topic)


def _memory(clusters: Sequence[Cluster]) -> Table:
    rows = [[cluster.name, f"{cluster.resident_mb():.0f}"] for cluster in clusters]
    return Table(("after the load", "resident MB"), rows, len(clusters))


def _measure(options: argparse.Namespace, folder: Path) -> Iterator[Table]:
    build = _PROJECT / "build" / "bench"
    _check_disk(folder)
    clusters: list[Cluster] = []
    try:
        for kind in options.cluster:
            clusters.append(CLUSTERS[kind](folder / kind))
        results = Results([cluster.name for cluster in clusters])
        results.starts = _measure_starts(clusters)
        cases = [case for case in CASES if options.only in case.name]
        _measure_loads(LoadGenerator(build), clusters, cases, options.rounds, results)
        yield from tables(results)
        steady = [case for case in LATENCY_CASES if options.only in case.name]
        if steady:
            yield measure_produce(
                build, clusters, steady, options.rounds, options.seconds, options.rate
            )
        yield _memory(clusters)
    finally:
        for cluster in clusters:
            cluster.stop()


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return (
            f"Median of {options.rounds} interleaved rounds; {SIZE} brokers each, {SIZE} replicas, "
            "acks=all, min.insync.replicas=2; CPU-seconds of all brokers together."
        )

    return Benchmark("replication", "three brokers", about).run(
        argv, options, lambda folder: _measure(options, folder)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
