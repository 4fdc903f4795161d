"""lakelog and Apache Kafka side by side, in one run, under the same load.

Both brokers run at once on loopback and are loaded in turn, round by round, so that whatever
else the machine does falls on both. The load generator costs little, so the figures are the
servers'. The program prints its measurements and passes no judgement.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from bare import BareSendfile  # noqa: E402
from benchmark import Benchmark  # noqa: E402
from brokers import Broker, add_broker_options, make_brokers  # noqa: E402
from load import Case, LoadGenerator, Measurement  # noqa: E402
from page_cache import back_free_memory  # noqa: E402
from report import Results, Start, tables  # noqa: E402
from rounds import interleaved, note  # noqa: E402

_IDLE_S = 10.0
_STARTS = 5
_MANY_PARTITIONS = 100
_VERIFYING = (
    "Kafka walks the records of every batch; lakelog does so in the cases `all` "
    "(`records.verify=all`), and in the others by its default, which is a sample."
)
CASES = (
    Case("produce 98 KB", "produce", "large", batch=98_000, records=100, megabytes=400),
    Case("produce 1 MB", "produce", "huge", batch=1_000_000, records=1000, megabytes=400),
    Case("produce 16 KB, 8 conn.", "produce", "medium", 16_384, 150, records=16, connections=8),
    Case("produce 1 KB", "produce", "small", batch=1024, megabytes=100, requests=40_000),
    Case("produce 1 KB, 8 conn.", "produce", "small8", 1024, 100, connections=8, requests=40_000),
    Case("produce 98 KB, all", "produce", "all", 98_000, 400, records=100, verifies_all=True),
    Case(
        "produce 16 KB, 8 conn., all",
        "produce",
        "all8",
        16_384,
        150,
        records=16,
        connections=8,
        verifies_all=True,
    ),
    Case("fetch 98 KB", "fetch", "large", batch=1 << 20, megabytes=3000),
    Case("fetch 1 MB", "fetch", "huge", batch=1 << 20, megabytes=3000),
    Case("fetch 98 KB, one a time", "fetch", "large", batch=100_000, megabytes=1000),
    Case("fetch 1 KB, 8 conn.", "fetch", "small8", 1024, 100, connections=8, requests=40_000),
)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds per case")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    add_broker_options(parser)
    parser.add_argument("--no-start", action="store_true", help="skip ready time and memory")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def _measure_start(results: Results, name: str, brokers: list[Broker]) -> None:
    for broker in brokers:
        note(f"{broker.name}: start, {name}")
        ready_s = [broker.start()]
        while len(ready_s) < _STARTS:
            broker.stop()
            ready_s.append(broker.start())
        time.sleep(_IDLE_S)
        ready = statistics.median(ready_s)
        results.starts.append(Start(name, broker.name, ready, broker.resident_mb()))


def _measure_starts(results: Results, brokers: list[Broker], load: LoadGenerator) -> None:
    _measure_start(results, "no topics", brokers)
    for broker in brokers:
        load.create_topic(broker, "many", _MANY_PARTITIONS)
        broker.stop()
    _measure_start(results, f"{_MANY_PARTITIONS} partitions", brokers)


def _measure_loads(
    results: Results,
    brokers: list[Broker],
    load: LoadGenerator,
    bare: BareSendfile,
    cases: list[Case],
    rounds: int,
) -> None:
    """Measure each case by itself, after warm-up rounds until the figures of both brokers repeat.

    A JVM compiles hot code only after a while.
    """
    for case in cases:

        def measure(broker: Broker | BareSendfile, case: Case = case) -> Measurement:
            if isinstance(broker, BareSendfile):
                return broker.measure(case, brokers[0])
            if case.mode == "produce":
                back_free_memory(broker.folder, case.megabytes)
            return load.measure(broker, case)

        servers: list[Broker | BareSendfile] = [
            *brokers,
            *([bare] if bare.applies_to(case) else []),
        ]
        measured = interleaved(
            case.name, servers, rounds, measure, lambda found: found.requests_per_cpu_s
        )
        for name, found in measured.items():
            results.loads[case, name] = found


def _select(cases: Sequence[Case], part: str) -> list[Case]:
    """Fetch cases bring the produce case that fills their topic."""
    chosen = [case for case in cases if part in case.name]
    topics = {case.topic for case in chosen if case.mode == "fetch"}
    return [c for c in cases if c in chosen or (c.mode == "produce" and c.topic in topics)]


def _run(options: argparse.Namespace, folder: Path) -> Results:
    build_folder = _PROJECT / "build" / "bench"
    load, bare = LoadGenerator(build_folder), BareSendfile(build_folder)
    brokers = make_brokers(options, folder)
    results = Results([broker.name for broker in brokers])
    cases = _select(CASES, options.only)
    try:
        for broker in brokers:
            broker.prepare()
        if options.no_start:
            for broker in brokers:
                broker.start()
        else:
            _measure_starts(results, brokers, load)
        for case in {case.topic: case for case in cases}.values():
            for broker in brokers:
                load.create_topic(broker, case.topic, case.partitions)
                if case.verifies_all:
                    broker.verify_all(case.topic)
        _measure_loads(results, brokers, load, bare, cases, options.rounds)
    finally:
        for broker in brokers:
            broker.stop()
    return results


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return f"Median of {options.rounds} interleaved rounds. {_VERIFYING}"

    return Benchmark("run", "", about).run(
        argv, options, lambda folder: tables(_run(options, folder))
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
